//! The rules of [`domain::ports::State`] that are about objects: their versions, and what guards them.

use domain::{
    commit::{Answer, Commit, Knowledge, Next, Reason, is_newer, is_unchanged, tie_of},
    event::{Stamp, Version},
    inbox::Status,
    plan::Guard,
    ports::{State as _, StoreError},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;

use super::{
    Kept, Tables,
    given::{accepted, at, commit, event_id, invoice, newer, outgoing, read, unchanged},
    state::{stripe, there},
};

pub(super) async fn an_object_ends_with_the_newest_version_in_every_order(
    on: &impl Tables,
) -> Kept {
    let nanosecond = |n: i128| Timestamp::from_nanosecond(1_790_000_000_000_000_000 + n).unwrap();
    let versions = [
        Version::Number(0),
        Version::Number(9),
        Version::Number(10),
        Version::Number(u64::MAX),
        Version::Time(nanosecond(0)),
        Version::Time(nanosecond(1)),
        Version::Text("2026-01-01".to_owned()),
        Version::Text("2026-01-01T00".to_owned()),
        Version::Text("É".to_owned()),
        Version::Composite(vec![]),
        Version::Composite(vec![Version::Number(9)]),
        Version::Composite(vec![Version::Number(9), Version::Text("a\0".to_owned())]),
        Version::Composite(vec![Version::Number(10), Version::Text("a".to_owned())]),
        Version::End,
        Version::Reading(9),
        Version::Reading(10),
    ];
    let mut pair = 0;
    for first in &versions {
        for second in &versions {
            // With one version, the content decides; and what is deleted wins.
            let contents: &[_] = if first == second {
                &[("a", "a"), ("a", "b"), ("b", "a"), ("a", GONE), (GONE, "a"), (GONE, GONE)]
            } else {
                &[("a", "a")]
            };
            for (a, b) in contents {
                pair += 1;
                compares(on, pair, [(first, a), (second, b)]).await?;
            }
        }
    }
    Ok(())
}

/// The content of an object that is deleted.
const GONE: &str = "gone";

/// Writes one object twice: each write happens if, and only if, it is newer.
async fn compares(on: &impl Tables, pair: u32, writes: [(&Version, &str); 2]) -> Kept {
    let id = format!("in_{pair}");
    let mut expected: Option<(&Version, String)> = None;
    for (n, (version, content)) in writes.into_iter().enumerate() {
        let (fields, deleted) = (json!(content), content == GONE);
        let event = format!("evt_{pair}_{n}");
        accepted(on, &event).await?;
        let tie = tie_of(&fields, deleted);
        let old = expected.as_ref().map(|(version, tie)| (*version, tie.as_str()));
        let newest = is_newer((version, &tie), old);
        let guard =
            Guard::Newer { object: invoice(&id), version: version.clone(), fields, deleted };
        let answer = on.state().commit(&commit(&event, vec![(guard, Vec::new())])).await?;
        assert_eq!(answer == Answer::Applied, newest, "{writes:?}, write {n}");
        if newest {
            expected = Some((version, tie));
        }
    }
    let (version, tie) = expected.unwrap();
    let object = on.state().object(&stripe(), &invoice(&id)).await?.unwrap();
    assert_eq!(object.deleted, tie.starts_with("gone:"));
    assert_eq!((&object.version, object.tie), (version, tie), "{writes:?}");
    Ok(())
}

/// A stream of numbers that is the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of.get(self.below(of.len())).copied().unwrap()
    }

    /// Few values of each kind, so that many pairs are equal, or begin alike.
    fn version(&mut self, depth: u32) -> Version {
        let number = |draws: &mut Self| draws.one(&[0, 1, 255, 256, u64::MAX]);
        let text = |draws: &mut Self| {
            (0..draws.below(3)).map(|_| draws.one(&['\0', '\u{1}', 'a', 'é'])).collect()
        };
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => Version::Number(number(self)),
            1 => {
                let second = self.one(&[-2, -1, 0, 1, 1_790_000_000]);
                let nanosecond = i32::try_from(self.below(2)).unwrap();
                Version::Time(Timestamp::new(second, nanosecond).unwrap())
            }
            2 => Version::Text(text(self)),
            3 => Version::End,
            4 => Version::Reading(number(self)),
            _ => Version::Composite((0..self.below(4)).map(|_| self.version(depth - 1)).collect()),
        }
    }
}

/// ORD-same-second: the condition is `is_newer`, word for word.
pub(super) async fn any_two_versions_compare_in_the_store_as_they_do_in_memory(
    on: &impl Tables,
) -> Kept {
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    for pair in 0..250 {
        let first = draws.version(2);
        // Often of one kind, or the same one.
        let second = match (&first, draws.below(4)) {
            (same, 0) => same.clone(),
            (Version::Composite(parts), 1 | 2) => {
                let mut parts = parts.clone();
                match draws.below(3) {
                    0 => parts.push(draws.version(1)),
                    1 => drop(parts.pop()),
                    _ => {
                        let changed = draws.version(1);
                        parts.last_mut().into_iter().for_each(|last| *last = changed.clone());
                    }
                }
                Version::Composite(parts)
            }
            _ => draws.version(2),
        };
        let contents = ["a", "b", GONE];
        let (a, b) = (draws.one(&contents), draws.one(&contents));
        compares(on, pair, [(&first, a), (&second, b)]).await?;
    }
    Ok(())
}

/// The condition is `is_unchanged`, word for word, whatever the object becomes: newer, older or deleted.
pub(super) async fn an_object_is_changed_only_if_it_is_as_it_was_read(on: &impl Tables) -> Kept {
    let composite =
        |text: &str| Version::Composite(vec![Version::Number(1), Version::Text(text.to_owned())]);
    let states = [
        None,
        Some((Version::Number(3), "a")),
        Some((Version::Number(3), "b")),
        Some((Version::Number(3), GONE)),
        Some((Version::Number(4), "a")),
        Some((Version::Text("3".to_owned()), "a")),
        Some((composite("a"), "a")),
        Some((composite("a\0"), "a")),
        Some((Version::End, GONE)),
        Some((Version::Reading(3), "a")),
    ];
    let tie = |content: &str| tie_of(&json!(content), content == GONE);
    let mut pair = 0;
    for is in &states {
        for read in &states {
            pair += 1;
            let (id, before) = (format!("in_{pair}"), format!("before_{pair}"));
            if let Some((version, content)) = is {
                accepted(on, &before).await?;
                let (fields, version) = (json!(content), version.clone());
                let deleted = *content == GONE;
                let guard = Guard::Newer { object: invoice(&id), version, fields, deleted };
                let put = commit(&before, vec![(guard, Vec::new())]);
                assert_eq!(on.state().commit(&put).await?, Answer::Applied);
            }
            let stamp = read
                .as_ref()
                .map(|(version, content)| Stamp { version: version.clone(), tie: tie(content) });
            let (now, shown) = (is.as_ref().map(|(v, content)| (v, tie(content))), (is, read));
            let now = now.as_ref().map(|(version, tie)| (*version, tie.as_str()));
            let expected = is_unchanged(stamp.as_ref(), now);
            let event = format!("evt_{pair}");
            accepted(on, &event).await?;
            // Older than all of them: it is not versions that are compared.
            let guard = unchanged(&id, stamp, Version::Number(1), json!("new"), true);
            let answer = on.state().commit(&commit(&event, vec![(guard, Vec::new())])).await?;
            assert_eq!(answer == Answer::Applied, expected, "{shown:?}");
            let object = on.state().object(&stripe(), &invoice(&id)).await?;
            let becomes = (Version::Number(1), tie_of(&json!("new"), true));
            let before = is.as_ref().map(|(version, content)| (version.clone(), tie(content)));
            let after = object.map(|object| (object.version, object.tie));
            assert_eq!(after, if expected { Some(becomes) } else { before }, "{shown:?}");
        }
    }
    Ok(())
}

pub(super) async fn a_plan_that_saw_another_state_is_asked_for_again_and_nothing_happens(
    on: &impl Tables,
) -> Kept {
    accepted(on, "evt_0").await?;
    let first = newer("in_1", Version::Number(3), json!("a"));
    let put = commit("evt_0", vec![(first, Vec::new())]);
    assert_eq!(on.state().commit(&put).await?, Answer::Applied);

    accepted(on, "evt_1").await?;
    let event = outgoing(event_id(0, 1), b"1");
    let guard = unchanged("in_1", None, Version::Number(4), json!("b"), false);
    let stale = newer("in_2", Version::Number(1), json!("c"));
    let plan = commit("evt_1", vec![(guard, vec![event.clone()]), (stale, Vec::new())]);
    let answer = on.state().commit(&plan).await?;
    let (ok, failed) = (Reason::None, Reason::ConditionFailed);
    assert_eq!(answer, Answer::Refused(vec![ok, failed, ok, ok]));
    assert_eq!(plan.after(&answer), Next::Replan);
    assert_eq!(read(on, "evt_1").await?.status, Status::Pending);
    assert_eq!(on.state().object(&stripe(), &invoice("in_2")).await?, None);
    assert!(!there(on, &event).await?);
    Ok(())
}

/// C31: each adds to what it read, and none of what is added is lost.
pub(super) async fn changes_that_depend_on_an_object_lose_nothing(on: &impl Tables) -> Kept {
    const WRITERS: u32 = 8;
    const WRITES: u32 = 5;
    let write = async |writer: u32| {
        for n in 0..WRITES {
            let event = format!("evt_{writer}_{n}");
            accepted(on, &event).await?;
            let mut rounds = 0;
            loop {
                let before = on.state().object(&stripe(), &invoice("in_1")).await?;
                let sum = before.as_ref().map_or(0, |object| object.fields.as_u64().unwrap());
                let stamp = before.as_ref().map(|object| object.stamp());
                let guard = unchanged("in_1", stamp, Version::Number(1), json!(sum + 1), false);
                let commit = commit(&event, vec![(guard, Vec::new())]);
                let answer = on.state().commit(&commit).await?;
                match commit.after(&answer) {
                    Next::Done(_) => break,
                    Next::Replan | Next::Again(_) => rounds += 1,
                    other => panic!("{other:?}"),
                }
                assert!(rounds < 1_000, "no end of it");
            }
        }
        Ok::<_, StoreError>(())
    };
    for done in join_all((0..WRITERS).map(write)).await {
        done?;
    }
    let object = on.state().object(&stripe(), &invoice("in_1")).await?.unwrap();
    assert_eq!(object.fields, json!(WRITERS * WRITES));
    Ok(())
}

pub(super) async fn an_object_says_of_when_it_is_and_whether_it_was_fetched(
    on: &impl Tables,
) -> Kept {
    for (n, fetched) in [(1, false), (2, true), (3, false)] {
        let event = format!("evt_{n}");
        accepted(on, &event).await?;
        let guard = newer("in_1", Version::Number(n), json!(n));
        let knowledge = Knowledge { as_of: at(i64::try_from(n).unwrap() - 100), fetched };
        let commit = Commit { knowledge, ..commit(&event, vec![(guard, Vec::new())]) };
        assert_eq!(on.state().commit(&commit).await?, Answer::Applied);
        let object = on.state().object(&stripe(), &invoice("in_1")).await?.unwrap();
        assert_eq!((object.as_of, object.fetched), (knowledge.as_of, fetched));
        assert_eq!(object.updated_at, commit.now);
    }
    Ok(())
}
