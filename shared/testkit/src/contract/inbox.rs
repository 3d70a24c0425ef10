//! The rules of [`domain::ports::Inbox`].

use domain::{
    body::{Place, Sha256Hash},
    event::Origin,
    inbox::{Accepted, ChangeResult, NewRow, Noted, OtherBodies, OtherBody, Row, Status},
    ports::{Finish, Inbox as _, StoreError},
};
use futures_util::future::join_all;

use super::{
    Kept, Tables,
    given::{DAY, accepted, at, claim, failure, key, note, processed, read, row},
    notes::{
        a_noted_attempt_is_counted_and_moves_the_due_time,
        an_attempt_about_to_be_tried_keeps_the_last_error,
        how_far_a_request_was_split_is_known_until_it_is_armed_again,
        until_when_a_row_waits_is_known_until_it_is_tried_again,
    },
    rules,
};

/// Runs the rules of [`domain::ports::Inbox`], each on fresh tables.
pub async fn inbox<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        a_new_row_is_pending_and_reads_back,
        a_bare_row_reads_back,
        ones_own_row_is_not_a_duplicate,
        a_duplicate_says_where_the_old_row_stands_and_changes_nothing,
        one_event_id_at_two_sources_is_two_rows,
        of_many_who_put_one_row_at_once_one_is_first,
        a_finished_row_is_absent_once_its_time_is_over,
        a_parked_row_never_goes,
        bodies_beside_a_row_are_told_apart_by_their_hash,
        only_a_parked_row_is_rearmed,
        any_row_but_a_pending_one_is_replayed,
        only_a_row_that_has_been_at_rest_for_long_enough_is_revived,
        a_noted_attempt_is_counted_and_moves_the_due_time,
        an_attempt_about_to_be_tried_keeps_the_last_error,
        other_bodies_are_counted_and_the_latest_is_kept_beside_an_unchanged_row,
        another_body_keeps_no_row_from_its_end_and_none_beyond_its_time,
        how_far_a_request_was_split_is_known_until_it_is_armed_again,
        until_when_a_row_waits_is_known_until_it_is_tried_again,
        a_parked_row_waits_with_its_reason,
        a_finished_row_keeps_its_results,
        an_ignored_row_keeps_its_reason,
        a_claim_of_an_earlier_cycle_ends_nothing,
        of_a_parking_and_a_finish_at_once_one_happens,
    );
}

async fn a_new_row_is_pending_and_reads_back(on: &impl Tables) -> Kept {
    let new = row("evt_1", "t", b"{}");
    assert!(on.inbox().read(&new.key).await?.is_none());
    assert_eq!(on.inbox().accept(&new).await?, Accepted::New);
    let row = read(on, "evt_1").await?;
    assert_eq!(row.new, new);
    assert_eq!((row.status, row.attempts, row.cycle, row.sweeps), (Status::Pending, 0, 0, 0));
    assert_eq!((row.due_at, row.armed_at), (Some(at(120)), at(0)));
    assert_eq!((row.dead_at, row.finished_at), (None, None));
    assert_eq!((row.last_error, row.next_action, row.results), (None, None, Vec::new()));
    Ok(())
}

async fn a_bare_row_reads_back(on: &impl Tables) -> Kept {
    let mut new = row("sha256:00", "t", b"");
    new.body.place = Place::Bucket;
    (new.event_type, new.object, new.version, new.occurred_at) = (None, None, None, None);
    (new.key_id, new.traceparent, new.origin) = (None, None, Origin::Reconcile);
    new.headers.clear();
    assert_eq!(on.inbox().accept(&new).await?, Accepted::New);
    assert_eq!(read(on, "sha256:00").await?.new, new);
    Ok(())
}

async fn ones_own_row_is_not_a_duplicate(on: &impl Tables) -> Kept {
    let new = row("evt_1", "mine", b"{}");
    assert_eq!(on.inbox().accept(&new).await?, Accepted::New);
    assert_eq!(on.inbox().accept(&new).await?, Accepted::New);
    assert_eq!(on.inbox().accept(&row("evt_1", "other", b"{}")).await?, duplicate(Status::Pending));
    Ok(())
}

fn duplicate(status: Status) -> Accepted {
    Accepted::Duplicate { status, same_body: true }
}

async fn a_duplicate_says_where_the_old_row_stands_and_changes_nothing(on: &impl Tables) -> Kept {
    let again = row("evt_1", "again", b"evt_1");
    let first = accepted(on, "evt_1").await?;
    let before = read(on, "evt_1").await?;
    assert_eq!(on.inbox().accept(&again).await?, duplicate(Status::Pending));
    let other_body = row("evt_1", "again", b"other");
    let other = Accepted::Duplicate { status: Status::Pending, same_body: false };
    assert_eq!(on.inbox().accept(&other_body).await?, other);
    assert_eq!(read(on, "evt_1").await?, before);
    assert_eq!(before.new, first);

    assert_eq!(on.inbox().park(&claim("evt_1", 0), 1, &failure(), at(5)).await?, Noted::Yes);
    assert_eq!(on.inbox().accept(&again).await?, duplicate(Status::DeadLetter));
    assert_eq!(on.inbox().rearm(&first.key, at(9), at(8)).await?, Noted::Yes);
    assert_eq!(on.inbox().finish(&claim("evt_1", 1), &processed(at(9))).await?, Noted::Yes);
    assert_eq!(on.inbox().accept(&again).await?, duplicate(Status::Processed));
    Ok(())
}

/// ING-id-scope-collision
async fn one_event_id_at_two_sources_is_two_rows(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let elsewhere = NewRow { key: key("github", "evt_1"), ..row("evt_1", "other", b"{}") };
    assert_eq!(on.inbox().accept(&elsewhere).await?, Accepted::New);
    assert_eq!(on.inbox().read(&elsewhere.key).await?.unwrap().new, elsewhere);
    Ok(())
}

async fn of_many_who_put_one_row_at_once_one_is_first(on: &impl Tables) -> Kept {
    let rows: Vec<_> = (0..64).map(|n| row("evt_1", &format!("t{n}"), b"{}")).collect();
    let answers = join_all(rows.iter().map(|row| on.inbox().accept(row))).await;
    let mut winners = Vec::new();
    for (row, answer) in rows.iter().zip(answers) {
        match answer? {
            Accepted::New => winners.push(row.token.clone()),
            other => assert_eq!(other, duplicate(Status::Pending)),
        }
    }
    assert_eq!(winners, [read(on, "evt_1").await?.new.token]);
    Ok(())
}

/// INB-ttl-not-enforced
async fn a_finished_row_is_absent_once_its_time_is_over(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    assert_eq!(on.inbox().finish(&claim("evt_1", 0), &processed(at(0))).await?, Noted::Yes);
    let late = |seconds, token| NewRow {
        received_at: at(seconds),
        due_at: at(seconds + 120),
        ..row("evt_1", token, b"evt_1")
    };
    let kept = on.inbox().accept(&late(35 * DAY - 1, "before")).await?;
    assert_eq!(kept, duplicate(Status::Processed));
    // Nobody has deleted it: the time alone decides.
    let new = late(37 * DAY, "after");
    assert_eq!(on.inbox().accept(&new).await?, Accepted::New);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.new, row.status, row.cycle), (new.clone(), Status::Pending, 0));
    assert_eq!((row.finished_at, row.results), (None, Vec::new()));
    // And what took its place is owed, and does not expire.
    let later = on.inbox().accept(&late(400 * DAY, "much later")).await?;
    assert_eq!(later, duplicate(Status::Pending));
    Ok(())
}

async fn a_parked_row_never_goes(on: &impl Tables) -> Kept {
    let new = accepted(on, "evt_1").await?;
    assert_eq!(on.inbox().finish(&claim("evt_1", 0), &processed(at(0))).await?, Noted::Yes);
    assert_eq!(on.inbox().replay(&new.key, at(60), at(50)).await?, Noted::Yes);
    let late = NewRow { received_at: at(400 * DAY), ..row("evt_1", "late", b"evt_1") };
    assert_eq!(on.inbox().accept(&late).await?, duplicate(Status::Pending));
    assert_eq!(on.inbox().park(&claim("evt_1", 1), 12, &failure(), at(70)).await?, Noted::Yes);
    assert_eq!(on.inbox().accept(&late).await?, duplicate(Status::DeadLetter));
    Ok(())
}

async fn bodies_beside_a_row_are_told_apart_by_their_hash(on: &impl Tables) -> Kept {
    let beside = |body: &[u8]| {
        let mut row = row("evt_1", "t", body);
        row.body.place = Place::Beside;
        row
    };
    let (first, second) = (beside(b"first"), beside(b"second"));
    assert_eq!(on.inbox().beside(&first).await?, None);
    on.inbox().put_beside(&first, b"packed").await?;
    on.inbox().put_beside(&first, b"packed").await?;
    on.inbox().put_beside(&second, b"other").await?;
    assert_eq!(on.inbox().beside(&first).await?.as_deref(), Some(b"packed".as_slice()));
    assert_eq!(on.inbox().beside(&second).await?.as_deref(), Some(b"other".as_slice()));
    // The row itself is another matter.
    assert!(on.inbox().read(&first.key).await?.is_none());
    assert_eq!(on.inbox().accept(&first).await?, Accepted::New);
    assert_eq!(read(on, "evt_1").await?.new.body, first.body);
    // Parking, replaying and finishing leave it readable.
    assert_eq!(on.inbox().park(&claim("evt_1", 0), 1, &failure(), at(5)).await?, Noted::Yes);
    assert_eq!(on.inbox().replay(&first.key, at(9), at(8)).await?, Noted::Yes);
    assert_eq!(on.inbox().finish(&claim("evt_1", 1), &processed(at(9))).await?, Noted::Yes);
    assert_eq!(on.inbox().replay(&first.key, at(20), at(19)).await?, Noted::Yes);
    assert_eq!(on.inbox().beside(&first).await?.as_deref(), Some(b"packed".as_slice()));
    assert_eq!(read(on, "evt_1").await?.new.body.sha256, Sha256Hash::of(b"first"));
    Ok(())
}

async fn only_a_parked_row_is_rearmed(on: &impl Tables) -> Kept {
    let inbox = on.inbox();
    let absent = key("stripe", "evt_0");
    assert_eq!(inbox.rearm(&absent, at(9), at(8)).await?, Noted::Moved);
    assert!(inbox.read(&absent).await?.is_none());

    let new = accepted(on, "evt_1").await?;
    assert_eq!(inbox.rearm(&new.key, at(9), at(8)).await?, Noted::Moved);
    let sweep = super::due_inbox::claim_once(on, "evt_1", at(100)).await?;
    assert_eq!(sweep, Noted::Yes);
    assert_eq!(inbox.park(&claim("evt_1", 0), 12, &failure(), at(50)).await?, Noted::Yes);
    assert_eq!(inbox.rearm(&new.key, at(200), at(80)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.attempts, row.cycle, row.sweeps), (Status::Pending, 0, 1, 0));
    assert_eq!((row.due_at, row.dead_at, row.armed_at), (Some(at(200)), None, at(80)));
    assert_eq!(inbox.rearm(&new.key, at(9), at(8)).await?, Noted::Moved);

    assert_eq!(inbox.finish(&claim("evt_1", 1), &processed(at(90))).await?, Noted::Yes);
    assert_eq!(inbox.rearm(&new.key, at(9), at(8)).await?, Noted::Moved);
    assert_eq!(read(on, "evt_1").await?.status, Status::Processed);
    Ok(())
}

async fn any_row_but_a_pending_one_is_replayed(on: &impl Tables) -> Kept {
    let inbox = on.inbox();
    let absent = key("stripe", "evt_0");
    assert_eq!(inbox.replay(&absent, at(9), at(8)).await?, Noted::Moved);
    assert!(inbox.read(&absent).await?.is_none());

    let new = accepted(on, "evt_1").await?;
    assert_eq!(inbox.replay(&new.key, at(9), at(8)).await?, Noted::Moved);
    assert_eq!(inbox.finish(&claim("evt_1", 0), &processed(at(10))).await?, Noted::Yes);
    assert_eq!(inbox.replay(&new.key, at(99), at(98)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.attempts, row.cycle), (Status::Pending, 0, 1));
    assert_eq!((row.due_at, row.finished_at, row.armed_at), (Some(at(99)), None, at(98)));
    assert_eq!(inbox.replay(&new.key, at(9), at(8)).await?, Noted::Moved);

    assert_eq!(inbox.park(&claim("evt_1", 1), 1, &failure(), at(110)).await?, Noted::Yes);
    assert_eq!(inbox.replay(&new.key, at(199), at(198)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.cycle, row.dead_at), (Status::Pending, 2, None));
    Ok(())
}

async fn only_a_row_that_has_been_at_rest_for_long_enough_is_revived(on: &impl Tables) -> Kept {
    use Status::{DeadLetter, Processed};
    let inbox = on.inbox();
    let new = row("evt_1", "t", b"{}");
    let revive = async |since| inbox.revive(&new.key, since, at(200), at(190)).await;
    assert_eq!(revive((Processed, at(99))).await?, Noted::Moved);
    assert_eq!(inbox.accept(&new).await?, Accepted::New);
    assert_eq!(revive((Processed, at(99))).await?, Noted::Moved);
    assert_eq!(inbox.finish(&claim("evt_1", 0), &processed(at(50))).await?, Noted::Yes);
    let before = read(on, "evt_1").await?;
    for (status, time) in [(Processed, 50), (Processed, 49), (DeadLetter, 99)] {
        assert_eq!(revive((status, at(time))).await?, Noted::Moved);
    }
    assert_eq!(read(on, "evt_1").await?, before);
    assert_eq!(revive((Processed, at(51))).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.attempts, row.cycle), (Status::Pending, 0, 1));
    assert_eq!((row.due_at, row.finished_at, row.armed_at), (Some(at(200)), None, at(190)));
    // It is owed, so it does not go.
    assert_eq!(
        inbox.accept(&NewRow { received_at: at(400 * DAY), ..new.clone() }).await?,
        Accepted::New
    );

    assert_eq!(inbox.park(&claim("evt_1", 1), 1, &failure(), at(300)).await?, Noted::Yes);
    assert_eq!(revive((DeadLetter, at(300))).await?, Noted::Moved);
    assert_eq!(revive((Processed, at(999))).await?, Noted::Moved);
    assert_eq!(revive((DeadLetter, at(301))).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.cycle, row.dead_at), (Status::Pending, 2, None));

    // A body beside the row does not keep it from that, and stays as long as it is owed.
    let mut beside = self::row("evt_2", "t", b"body");
    beside.body.place = Place::Beside;
    inbox.put_beside(&beside, b"body").await?;
    assert_eq!(inbox.accept(&beside).await?, Accepted::New);
    assert_eq!(inbox.finish(&claim("evt_2", 0), &processed(at(50))).await?, Noted::Yes);
    let revived = inbox.revive(&beside.key, (Processed, at(50)), at(200), at(190)).await?;
    assert_eq!(revived, Noted::Moved);
    let revived = inbox.revive(&beside.key, (Processed, at(51)), at(200), at(190)).await?;
    assert_eq!(revived, Noted::Yes);
    assert_eq!(inbox.beside(&beside).await?.as_deref(), Some(&b"body"[..]));
    Ok(())
}

fn other_body(body: &[u8], seconds: i64) -> OtherBody {
    OtherBody { sha256: Sha256Hash::of(body), length: body.len() as u64, at: at(seconds) }
}

/// Notes another body, and gives the row, which is otherwise as before.
async fn other_body_noted(
    on: &impl Tables,
    event: &str,
    last: OtherBody,
    count: u64,
) -> Result<Row, StoreError> {
    let before = read(on, event).await?;
    assert_eq!(on.inbox().note_other_body(&before.new.key, &last).await?, Noted::Yes);
    let row = read(on, event).await?;
    assert_eq!(row.other_bodies, Some(OtherBodies { count, last }));
    assert_eq!(Row { other_bodies: before.other_bodies, ..row.clone() }, before);
    Ok(row)
}

/// ING-same-id-other-body
async fn other_bodies_are_counted_and_the_latest_is_kept_beside_an_unchanged_row(
    on: &impl Tables,
) -> Kept {
    let inbox = on.inbox();
    let absent = key("stripe", "evt_0");
    assert_eq!(inbox.note_other_body(&absent, &other_body(b"b", 1)).await?, Noted::Moved);
    assert!(inbox.read(&absent).await?.is_none());

    accepted(on, "evt_1").await?;
    assert_eq!(read(on, "evt_1").await?.other_bodies, None);
    other_body_noted(on, "evt_1", other_body(b"second", 3), 1).await?;
    other_body_noted(on, "evt_1", other_body(b"third one", 4), 2).await?;
    // Counted each time it comes.
    other_body_noted(on, "evt_1", other_body(b"second", 5), 3).await?;
    // Not another event's.
    accepted(on, "evt_2").await?;
    assert_eq!(read(on, "evt_2").await?.other_bodies, None);
    Ok(())
}

/// ING-same-id-other-body: whatever state the row is in, and whatever becomes of it afterwards.
async fn another_body_keeps_no_row_from_its_end_and_none_beyond_its_time(on: &impl Tables) -> Kept {
    let (inbox, new) = (on.inbox(), accepted(on, "evt_1").await?);
    other_body_noted(on, "evt_1", other_body(b"a", 1), 1).await?;
    assert_eq!(inbox.park(&claim("evt_1", 0), 12, &failure(), at(5)).await?, Noted::Yes);
    other_body_noted(on, "evt_1", other_body(b"b", 6), 2).await?;
    assert_eq!(inbox.rearm(&new.key, at(9), at(8)).await?, Noted::Yes);
    assert_eq!(inbox.finish(&claim("evt_1", 1), &processed(at(10))).await?, Noted::Yes);
    let row = other_body_noted(on, "evt_1", other_body(b"c", 34 * DAY), 3).await?;
    assert_eq!(row.status, Status::Processed);
    // The row goes when it would have gone, and what takes its place knows nothing of it.
    let late = 36 * DAY;
    let again = NewRow { received_at: at(late), due_at: at(late + 120), ..row.new };
    let again = NewRow { token: "again".to_owned(), ..again };
    assert_eq!(inbox.accept(&again).await?, Accepted::New);
    assert_eq!(read(on, "evt_1").await?.other_bodies, None);
    Ok(())
}

async fn a_parked_row_waits_with_its_reason(on: &impl Tables) -> Kept {
    let inbox = on.inbox();
    assert_eq!(inbox.park(&claim("evt_1", 0), 12, &failure(), at(50)).await?, Noted::Moved);
    assert!(inbox.read(&key("stripe", "evt_1")).await?.is_none());
    accepted(on, "evt_1").await?;
    assert_eq!(inbox.park(&claim("evt_1", 0), 12, &failure(), at(50)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.attempts, row.cycle), (Status::DeadLetter, 12, 0));
    assert_eq!((row.dead_at, row.due_at), (Some(at(50)), None));
    assert_eq!(row.last_error, Some(failure()));
    assert_eq!(inbox.park(&claim("evt_1", 0), 13, &failure(), at(60)).await?, Noted::Moved);
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Moved);
    assert_eq!(inbox.finish(&claim("evt_1", 0), &processed(at(60))).await?, Noted::Moved);
    assert_eq!(read(on, "evt_1").await?, row);
    Ok(())
}

async fn a_finished_row_keeps_its_results(on: &impl Tables) -> Kept {
    let (inbox, finish) = (on.inbox(), processed(at(50)));
    assert_eq!(inbox.finish(&claim("evt_1", 0), &finish).await?, Noted::Moved);
    assert!(inbox.read(&key("stripe", "evt_1")).await?.is_none());
    accepted(on, "evt_1").await?;
    assert_eq!(inbox.finish(&claim("evt_1", 0), &finish).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.finished_at), (Status::Processed, Some(at(50))));
    assert_eq!((row.due_at, &row.results), (None, &finish.results));
    let ignored = Finish { status: Status::Ignored, ..processed(at(70)) };
    assert_eq!(inbox.finish(&claim("evt_1", 0), &ignored).await?, Noted::Moved);
    assert_eq!(inbox.park(&claim("evt_1", 0), 1, &failure(), at(70)).await?, Noted::Moved);
    assert_eq!(read(on, "evt_1").await?, row);
    Ok(())
}

async fn an_ignored_row_keeps_its_reason(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    let reason = Some("nobody wants charge.updated".to_owned());
    let results: Vec<ChangeResult> = Vec::new();
    let ignored = Finish { status: Status::Ignored, results, reason, ..processed(at(50)) };
    assert_eq!(on.inbox().finish(&claim("evt_1", 0), &ignored).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.results), (Status::Ignored, Vec::new()));
    assert_eq!(row.next_action.as_deref(), Some("nobody wants charge.updated"));
    Ok(())
}

/// INB-lease-expires-side-effect-repeats: a worker that wakes up late.
async fn a_claim_of_an_earlier_cycle_ends_nothing(on: &impl Tables) -> Kept {
    let (inbox, late) = (on.inbox(), claim("evt_1", 0));
    let new = accepted(on, "evt_1").await?;
    assert_eq!(inbox.park(&late, 12, &failure(), at(50)).await?, Noted::Yes);
    assert_eq!(inbox.rearm(&new.key, at(200), at(80)).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!(inbox.note(&late, &note(5, at(300))).await?, Noted::Moved);
    assert_eq!(inbox.park(&late, 12, &failure(), at(90)).await?, Noted::Moved);
    assert_eq!(inbox.finish(&late, &processed(at(90))).await?, Noted::Moved);
    assert_eq!(read(on, "evt_1").await?, row);
    Ok(())
}

async fn of_a_parking_and_a_finish_at_once_one_happens(on: &impl Tables) -> Kept {
    for n in 0..16 {
        let event = format!("evt_{n}");
        accepted(on, &event).await?;
        let (claim, failure, finish) = (claim(&event, 0), failure(), processed(at(50)));
        let park = on.inbox().park(&claim, 12, &failure, at(50));
        let end = on.inbox().finish(&claim, &finish);
        let (parked, ended) = futures_util::future::join(park, end).await;
        let expected = match (parked?, ended?) {
            (Noted::Yes, Noted::Moved) => Status::DeadLetter,
            (Noted::Moved, Noted::Yes) => Status::Processed,
            both => panic!("{both:?}"),
        };
        assert_eq!(read(on, &event).await?.status, expected);
    }
    Ok(())
}
