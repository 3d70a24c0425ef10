//! The rules of [`domain::ports::Inbox::note`]: what is written of an attempt that has not finished its row.

use domain::{
    inbox::{Noted, Status},
    ports::{AttemptNote, Inbox as _, StoreError},
};

use super::{
    Kept, Tables,
    given::{accepted, at, claim, failure, key, note, processed, read},
};

pub(super) async fn a_noted_attempt_is_counted_and_moves_the_due_time(on: &impl Tables) -> Kept {
    let inbox = on.inbox();
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Moved);
    assert!(inbox.read(&key("stripe", "evt_1")).await?.is_none());
    accepted(on, "evt_1").await?;
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.status, row.attempts, row.due_at), (Status::Pending, 1, Some(at(300))));
    assert_eq!(row.last_error, Some(failure()));
    assert_eq!(row.next_action.as_deref(), Some("try again"));
    assert_eq!(inbox.finish(&claim("evt_1", 0), &processed(at(9))).await?, Noted::Yes);
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(2, at(400))).await?, Noted::Moved);
    assert_eq!(read(on, "evt_1").await?.due_at, None);
    Ok(())
}

pub(super) async fn an_attempt_about_to_be_tried_keeps_the_last_error(on: &impl Tables) -> Kept {
    accepted(on, "evt_1").await?;
    assert_eq!(on.inbox().note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Yes);
    let trying = AttemptNote { failure: None, ..note(2, at(400)) };
    assert_eq!(on.inbox().note(&claim("evt_1", 0), &trying).await?, Noted::Yes);
    let row = read(on, "evt_1").await?;
    assert_eq!((row.attempts, row.last_error), (2, Some(failure())));
    Ok(())
}

pub(super) async fn how_far_a_request_was_split_is_known_until_it_is_armed_again(
    on: &impl Tables,
) -> Kept {
    let new = accepted(on, "evt_1").await?;
    assert_eq!(read(on, "evt_1").await?.split, 0);
    let split = AttemptNote { failure: None, split: Some(250), ..note(0, at(300)) };
    assert_eq!(on.inbox().note(&claim("evt_1", 0), &split).await?, Noted::Yes);
    assert_eq!(on.inbox().note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Yes);
    assert_eq!(read(on, "evt_1").await?.split, 250);
    assert_eq!(on.inbox().park(&claim("evt_1", 0), 12, &failure(), at(310)).await?, Noted::Yes);
    assert_eq!(read(on, "evt_1").await?.split, 250);
    assert_eq!(on.inbox().rearm(&new.key, at(400), at(320)).await?, Noted::Yes);
    assert_eq!(read(on, "evt_1").await?.split, 0);
    Ok(())
}

pub(super) async fn until_when_a_row_waits_is_known_until_it_is_tried_again(
    on: &impl Tables,
) -> Kept {
    let (new, inbox) = (accepted(on, "evt_1").await?, on.inbox());
    let (until, since) = (Some(at(240)), Some(at(200)));
    let waits = AttemptNote { waits_until: until, waits_since: since, ..note(0, at(300)) };
    let counted = AttemptNote { waits_until: None, ..waits.clone() };
    let row = async || read(on, "evt_1").await;
    let waits_until = async || Ok::<_, StoreError>(row().await?.waits_until);
    let waits_since = async || Ok::<_, StoreError>(row().await?.waits_since);
    assert_eq!(inbox.note(&claim("evt_1", 0), &waits).await?, Noted::Yes);
    assert_eq!(waits_since().await?, since);
    assert_eq!(inbox.note(&claim("evt_1", 0), &counted).await?, Noted::Yes);
    assert_eq!(waits_since().await?, since, "it was tried, and waits again");
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(0, at(300))).await?, Noted::Yes);
    assert_eq!(waits_since().await?, None);
    assert_eq!(waits_until().await?, None);
    assert_eq!(inbox.note(&claim("evt_1", 0), &waits).await?, Noted::Yes);
    assert_eq!(waits_until().await?, Some(at(240)));
    assert_eq!(inbox.note(&claim("evt_1", 0), &note(1, at(300))).await?, Noted::Yes);
    assert_eq!(waits_until().await?, None);
    // And no wait outlives the row's own end.
    assert_eq!(inbox.note(&claim("evt_1", 0), &waits).await?, Noted::Yes);
    assert_eq!(inbox.park(&claim("evt_1", 0), 12, &failure(), at(310)).await?, Noted::Yes);
    assert_eq!((waits_until().await?, waits_since().await?), (None, None));
    assert_eq!(inbox.rearm(&new.key, at(400), at(320)).await?, Noted::Yes);
    assert_eq!(waits_since().await?, None);
    assert_eq!(inbox.note(&claim("evt_1", 1), &waits).await?, Noted::Yes);
    assert_eq!(inbox.finish(&claim("evt_1", 1), &processed(at(400))).await?, Noted::Yes);
    assert_eq!((waits_until().await?, waits_since().await?), (None, None));
    Ok(())
}
