//! The rules of [`domain::ports::Turns`].

use std::time::Duration;

use domain::{
    fetch::Pace,
    id::SourceName,
    ports::{StoreError, Turn, Turns},
};
use jiff::Timestamp;

use super::{Kept, Tables, rules};

/// Runs the rules of [`domain::ports::Turns`], each on fresh tables.
pub async fn turns<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        after_a_pause_so_many_go_at_once_and_then_one_after_the_other,
        a_turn_is_taken_only_by_who_waits_for_it,
        sources_do_not_take_turns_of_each_other,
        a_hold_is_for_everybody_and_never_gets_shorter,
        a_pause_gives_back_no_more_than_the_burst,
        however_many_ask_at_once_no_more_go_than_may,
    );
}

const PACE: Pace = Pace { interval: Duration::from_millis(100), burst: 3 };
const PATIENCE: Duration = Duration::from_secs(2);

fn ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_790_000_000_000 + ms).unwrap_or(Timestamp::MAX)
}

fn hub() -> SourceName {
    "hub".parse().unwrap()
}

async fn take(on: &impl Tables, at: i64) -> Result<Turn, StoreError> {
    on.state().take_turn(&hub(), PACE, PATIENCE, ms(at)).await
}

async fn after_a_pause_so_many_go_at_once_and_then_one_after_the_other(on: &impl Tables) -> Kept {
    for _ in 0..3 {
        assert_eq!(take(on, 0).await?, Turn::Now);
    }
    for n in 1..=3 {
        assert_eq!(take(on, 0).await?, Turn::At(ms(n * 100)));
    }
    assert_eq!(take(on, 250).await?, Turn::At(ms(400)));
    assert_eq!(take(on, 500).await?, Turn::Now);
    Ok(())
}

async fn a_turn_is_taken_only_by_who_waits_for_it(on: &impl Tables) -> Kept {
    for _ in 0..23 {
        assert!(!matches!(take(on, 0).await?, Turn::Later(_)));
    }
    for _ in 0..5 {
        assert_eq!(take(on, 0).await?, Turn::Later(ms(2100)), "it costs the others nothing");
    }
    assert_eq!(take(on, 100).await?, Turn::At(ms(2100)));
    let short = on.state().take_turn(&hub(), PACE, Duration::ZERO, ms(100)).await?;
    assert_eq!(short, Turn::Later(ms(2200)));
    Ok(())
}

async fn sources_do_not_take_turns_of_each_other(on: &impl Tables) -> Kept {
    for _ in 0..30 {
        take(on, 0).await?;
    }
    on.state().hold_turns(&hub(), ms(9000)).await?;
    let other = on.state().take_turn(&"shop".parse().unwrap(), PACE, PATIENCE, ms(0)).await?;
    assert_eq!(other, Turn::Now);
    Ok(())
}

async fn a_hold_is_for_everybody_and_never_gets_shorter(on: &impl Tables) -> Kept {
    on.state().hold_turns(&hub(), ms(5000)).await?;
    on.state().hold_turns(&hub(), ms(1000)).await?;
    assert_eq!(take(on, 0).await?, Turn::Later(ms(5000)));
    assert_eq!(take(on, 4999).await?, Turn::Later(ms(5000)));
    assert_eq!(take(on, 5000).await?, Turn::Now);
    assert_eq!(take(on, 5000).await?, Turn::Now);
    on.state().hold_turns(&hub(), ms(6000)).await?;
    assert_eq!(take(on, 5001).await?, Turn::Later(ms(6000)));
    Ok(())
}

async fn a_pause_gives_back_no_more_than_the_burst(on: &impl Tables) -> Kept {
    take(on, 0).await?;
    for _ in 0..3 {
        assert_eq!(take(on, 60_000).await?, Turn::Now);
    }
    assert_eq!(take(on, 60_000).await?, Turn::At(ms(60_100)));
    Ok(())
}

async fn however_many_ask_at_once_no_more_go_than_may(on: &impl Tables) -> Kept {
    let all = (0..12).map(|_| take(on, 0));
    let turns = futures_util::future::try_join_all(all).await?;
    let now = turns.iter().filter(|turn| **turn == Turn::Now).count();
    assert_eq!(now, 3, "{turns:?}");
    let mut later: Vec<_> = turns
        .iter()
        .filter_map(|turn| if let Turn::At(at) = turn { Some(*at) } else { None })
        .collect();
    later.sort();
    assert_eq!(later, (1..=9).map(|n| ms(n * 100)).collect::<Vec<_>>());
    Ok(())
}
