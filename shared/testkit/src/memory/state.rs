//! Objects, operation keys and leases in memory; and the transaction.

use domain::{
    commit::{Action, Answer, Commit, LeaseProof, Reason, is_newer, is_unchanged, tie_of},
    event::{Object, ObjectRef},
    id::SourceName,
    inbox::Status,
    outbox::OutboxRow,
    plan::Guard,
    ports::{Finish, Lease, State, Stored},
};
use jiff::Timestamp;

use super::{Store, Tables, inbox};

impl State for Store {
    async fn object(&self, source: &SourceName, object: &ObjectRef) -> Stored<Option<Object>> {
        let key = (source.clone(), object.clone());
        self.call("state.object", |tables| tables.objects.get(&key).cloned()).await
    }

    async fn commit(&self, commit: &Commit) -> Stored<Answer> {
        self.call("state.commit", |tables| {
            let actions = commit.actions();
            let reasons: Vec<_> =
                actions.iter().map(|action| judge(tables, commit, action)).collect();
            if reasons.iter().any(|reason| *reason != Reason::None) {
                return Answer::Refused(reasons);
            }
            for action in &actions {
                carry_out(tables, commit, action);
            }
            Answer::Applied
        })
        .await
    }

    async fn lease(
        &self,
        what: &str,
        owner: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Stored<Lease> {
        self.call("state.lease", |tables| {
            let (holder, fence, ends) = tables
                .leases
                .entry(what.to_owned())
                .or_insert_with(|| (String::new(), 0, Timestamp::MIN));
            if *ends > now && holder != owner {
                return Lease::Busy(*ends);
            }
            (*holder, *fence, *ends) = (owner.to_owned(), *fence + 1, until);
            Lease::Held(LeaseProof {
                what: what.to_owned(),
                owner: owner.to_owned(),
                fence: *fence,
            })
        })
        .await
    }

    async fn give_back(&self, lease: &LeaseProof, now: Timestamp) -> Stored<()> {
        self.call("state.give_back", |tables| {
            if let Some((owner, fence, until)) = tables.leases.get_mut(&lease.what)
                && *owner == lease.owner
                && *fence == lease.fence
            {
                *until = now;
            }
        })
        .await
    }
}

fn judge(tables: &Tables, commit: &Commit, action: &Action<'_>) -> Reason {
    let claim = &commit.claim;
    let holds = match action {
        Action::Finish => tables.inbox.get(&claim.key).is_some_and(|item| {
            item.row.status == Status::Pending && item.row.cycle == claim.cycle
        }),
        Action::Guard(Guard::Newer { object, version, fields, deleted }) => {
            let old = tables.objects.get(&(claim.key.source().clone(), object.clone()));
            let old = old.map(|old| (&old.version, old.tie.as_str()));
            is_newer((version, &tie_of(fields, *deleted)), old)
        }
        Action::Guard(Guard::Unchanged { object, read, .. }) => {
            let now = tables.objects.get(&(claim.key.source().clone(), object.clone()));
            is_unchanged(read.as_ref(), now.map(|now| (&now.version, now.tie.as_str())))
        }
        Action::Guard(Guard::Once(key)) => !tables.operations.contains(key.as_str()),
        Action::Guard(Guard::Free | Guard::Refused { .. }) => true,
        Action::Lease(lease) => tables
            .leases
            .get(&lease.what)
            .is_some_and(|(owner, fence, _)| *owner == lease.owner && *fence == lease.fence),
        Action::Emit(event) => !tables.outbox.contains_key(&(event.tenant.clone(), event.id)),
    };
    if holds { Reason::None } else { Reason::ConditionFailed }
}

fn carry_out(tables: &mut Tables, commit: &Commit, action: &Action<'_>) {
    match action {
        Action::Finish => {
            let how = Finish {
                status: Status::Processed,
                results: commit.results_if_applied(),
                reason: None,
                now: commit.now,
                expires_at: commit.expires_at,
            };
            let _ = inbox::claimed(tables, &commit.claim, |item| inbox::finish(item, &how));
        }
        Action::Guard(
            Guard::Newer { object, version, fields, deleted }
            | Guard::Unchanged { object, version, fields, deleted, .. },
        ) => {
            let key = (commit.claim.key.source().clone(), object.clone());
            let object = Object {
                version: version.clone(),
                tie: tie_of(fields, *deleted),
                fields: fields.clone(),
                deleted: *deleted,
                updated_at: commit.now,
                as_of: commit.knowledge.as_of,
                fetched: commit.knowledge.fetched,
            };
            tables.objects.insert(key, object);
        }
        Action::Guard(Guard::Once(key)) => {
            tables.operations.insert(key.to_string());
        }
        Action::Guard(Guard::Free | Guard::Refused { .. }) | Action::Lease(_) => {}
        Action::Emit(event) => {
            let row = OutboxRow { event: (*event).clone(), relayed: None };
            tables.outbox.insert((event.tenant.clone(), event.id), row);
            tables.stream.push((*event).clone());
        }
    }
}
