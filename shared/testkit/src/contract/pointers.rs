//! The rules of pointers: in order, and in two kinds.

use domain::{
    lane::Kind,
    ports::{Deliveries as _, Due, Fanout as _},
};

use super::{
    Kept, Tables,
    deliveries::{due, pointer, put, retry},
    given::{at, event_id, lane},
};

pub(super) async fn pointers_come_in_order_up_to_now(on: &impl Tables) -> Kept {
    let mut pointers: Vec<_> = (0..40_u32)
        .map(|n| pointer(event_id(0, n), 100 + i64::from((n * 17) % 40)))
        // Two of one moment.
        .chain([pointer(event_id(0, 40), 100), pointer(event_id(0, 41), 119)])
        .collect();
    for pointer in &pointers {
        on.lanes().point(&lane(0), pointer).await?;
    }
    on.lanes().point(&lane(1), &pointer(event_id(0, 99), 100)).await?;
    pointers.sort();
    let until_now: Vec<_> = pointers.iter().filter(|p| p.due_at <= at(119)).cloned().collect();
    assert_eq!(due(on, 119).await?, until_now);
    let fresh = async |due, limit| on.lanes().due(&lane(0), Kind::Fresh, due, limit).await;
    let first = fresh(Due::by(at(119)), 7).await?;
    assert_eq!(first, until_now.iter().take(7).cloned().collect::<Vec<_>>());
    assert!(due(on, 99).await?.is_empty());
    // A millisecond decides.
    let millisecond = std::time::Duration::from_millis(1);
    assert!(fresh(Due::by(at(100) - millisecond), 100).await?.is_empty());
    // Both ends belong to a range.
    let between = |from, to| pointers.iter().filter(move |p| (from..=to).contains(&p.due_at));
    for (from, until) in [(at(105), at(119)), (at(100), at(100)), (at(90), at(101))] {
        let expected: Vec<_> = between(from, until).cloned().collect();
        assert_eq!(fresh(Due { from: Some(from), until }, 100).await?, expected);
    }
    let late = Due { from: Some(at(105) + millisecond), until: at(119) };
    assert_eq!(fresh(late, 100).await?, between(at(106), at(119)).cloned().collect::<Vec<_>>());
    let never = Due { from: Some(at(119)), until: at(105) };
    assert!(never.is_empty() && fresh(never, 100).await?.is_empty());
    Ok(())
}

pub(super) async fn pointers_of_retries_stand_apart(on: &impl Tables) -> Kept {
    let lanes = on.lanes();
    for n in 0..3 {
        lanes.point(&lane(0), &pointer(event_id(0, n), 10)).await?;
        lanes.point(&lane(0), &retry(event_id(0, n), 5)).await?;
    }
    for (kind, second) in [(Kind::Fresh, 10), (Kind::Retry, 5)] {
        assert_eq!(lanes.next_due(&lane(0), kind).await?, Some(at(second)));
        let found = lanes.due(&lane(0), kind, Due::by(at(10)), 100).await?;
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|p| (p.kind, p.due_at) == (kind, at(second))), "{found:?}");
        let just_before = at(second) - std::time::Duration::from_millis(1);
        assert!(lanes.due(&lane(0), kind, Due::by(just_before), 100).await?.is_empty());
    }
    for n in 0..3 {
        lanes.unpoint(&lane(0), &pointer(event_id(0, n), 10)).await?;
    }
    assert_eq!(lanes.next_due(&lane(0), Kind::Fresh).await?, None);
    assert_eq!(lanes.next_due(&lane(0), Kind::Retry).await?, Some(at(5)));
    Ok(())
}

pub(super) async fn the_first_pointer_says_when_the_lane_is_due_next(on: &impl Tables) -> Kept {
    let next = async || on.lanes().next_due(&lane(0), Kind::Fresh).await;
    assert_eq!(next().await?, None);
    // The lane's own item and its deliveries stand beside the pointers.
    on.lanes().wake(&lane(0), at(0)).await?;
    on.lanes().point(&lane(0), &pointer(event_id(0, 1), 900)).await?;
    put(on, event_id(0, 2), 300).await?;
    assert_eq!(next().await?, Some(at(300)));
    on.lanes().unpoint(&lane(0), &pointer(event_id(0, 2), 300)).await?;
    assert_eq!(next().await?, Some(at(900)));
    Ok(())
}

pub(super) async fn pointers_are_put_and_deleted_any_number_of_times(on: &impl Tables) -> Kept {
    let (event, lanes) = (event_id(0, 1), on.lanes());
    for _ in 0..2 {
        lanes.point(&lane(0), &pointer(event, 5)).await?;
        lanes.point(&lane(0), &pointer(event, 9)).await?;
    }
    assert_eq!(due(on, 10).await?, [pointer(event, 5), pointer(event, 9)]);
    for _ in 0..2 {
        lanes.unpoint(&lane(0), &pointer(event, 5)).await?;
    }
    assert_eq!(due(on, 10).await?, [pointer(event, 9)]);
    Ok(())
}
