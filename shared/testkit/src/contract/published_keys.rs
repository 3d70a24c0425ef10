//! The rules of [`domain::ports::PublishedKeys`].

use domain::{
    id::SourceName,
    ports::{MAX_KEYS_OWED, MAX_OWED, Owed, PublishedKey, PublishedKeys, StoreError, Want},
};

use super::{Kept, Tables, given::at, rules};

/// Runs the rules of [`domain::ports::PublishedKeys`], each on fresh tables.
pub async fn published_keys<T: Tables>(fresh: impl AsyncFn() -> T) {
    rules!(fresh:
        what_is_wanted_is_owed_once,
        strangers_cannot_make_the_list_grow,
        what_was_wanted_at_once_is_all_owed,
        a_key_that_came_is_kept_and_owed_no_more,
        what_did_not_work_is_owed_later,
        what_is_given_up_is_gone,
    );
}

fn hub() -> SourceName {
    "hub".parse().unwrap()
}

fn key(id: &str) -> Want {
    Want::Key(id.to_owned())
}

async fn owed(on: &impl Tables, seconds: i64) -> Result<Vec<Owed>, StoreError> {
    on.state().owed(at(seconds), 100).await
}

async fn what_is_wanted_is_owed_once(on: &impl Tables) -> Kept {
    let (state, shop) = (on.state(), "shop".parse::<SourceName>().unwrap());
    let visit = Want::Confirm("https://sns.example/?Action=Confirm#x".to_owned());
    assert!(owed(on, 0).await?.is_empty());
    state.want(&shop, &key("k1"), at(3)).await?;
    state.want(&hub(), &key("k1"), at(1)).await?;
    assert!(state.want(&hub(), &key("k1"), at(2)).await?, "it is owed already");
    assert!(state.want(&hub(), &visit, at(2)).await?);
    let all = [
        Owed::new(hub(), key("k1"), at(1)),
        Owed::new(hub(), visit, at(2)),
        Owed::new(shop, key("k1"), at(3)),
    ];
    assert_eq!(owed(on, 3).await?, all);
    assert_eq!(state.owed(at(3), 2).await?, all[..2]);
    assert_eq!(owed(on, 1).await?, all[..1]);
    Ok(())
}

async fn strangers_cannot_make_the_list_grow(on: &impl Tables) -> Kept {
    for n in 0..MAX_KEYS_OWED + 5 {
        let is_owed = on.state().want(&hub(), &key(&format!("k{n}")), at(0)).await?;
        assert_eq!(is_owed, n < MAX_KEYS_OWED);
    }
    assert_eq!(owed(on, 0).await?.len(), MAX_KEYS_OWED);
    for n in MAX_KEYS_OWED..MAX_OWED + 5 {
        let visit = Want::Confirm(format!("https://sns.example/?Action=Confirm&n={n}"));
        assert_eq!(on.state().want(&hub(), &visit, at(0)).await?, n < MAX_OWED);
    }
    on.state().give_up(&Owed::new(hub(), key("k3"), at(0))).await?;
    on.state().want(&hub(), &key("late"), at(1)).await?;
    assert!(owed(on, 1).await?.iter().any(|owed| owed.want == key("late")));
    Ok(())
}

async fn what_was_wanted_at_once_is_all_owed(on: &impl Tables) -> Kept {
    let wants: Vec<_> = (0..3).map(|n| key(&format!("k{n}"))).collect();
    let source = hub();
    let all = wants.iter().map(|want| on.state().want(&source, want, at(0)));
    futures_util::future::try_join_all(all).await?;
    assert_eq!(owed(on, 0).await?.len(), 3);
    Ok(())
}

async fn a_key_that_came_is_kept_and_owed_no_more(on: &impl Tables) -> Kept {
    let state = on.state();
    assert!(state.published(&hub()).await?.is_empty());
    state.want(&hub(), &key("k#1"), at(0)).await?;
    let [owing] = owed(on, 0).await?.try_into().unwrap();
    let came = |text: &str, seconds| PublishedKey {
        id: "k#1".to_owned(),
        text: text.to_owned(),
        fetched_at: at(seconds),
    };
    state.keep(&owing, Some(&came("old", 5))).await?;
    assert!(owed(on, 5).await?.is_empty());
    state.want(&hub(), &key("k#1"), at(6)).await?;
    assert_eq!(owed(on, 6).await?.len(), 1, "it may be wanted again");
    state.keep(&owing, Some(&came("new", 7))).await?;
    assert_eq!(state.published(&hub()).await?, [came("new", 7)]);
    assert!(state.published(&"shop".parse().unwrap()).await?.is_empty());
    state.want(&hub(), &Want::Confirm("https://a.example".to_owned()), at(8)).await?;
    let [visit] = owed(on, 8).await?.try_into().unwrap();
    state.keep(&visit, None).await?;
    assert!(owed(on, 9).await?.is_empty());
    assert_eq!(state.published(&hub()).await?.len(), 1);
    Ok(())
}

async fn what_did_not_work_is_owed_later(on: &impl Tables) -> Kept {
    let state = on.state();
    state.want(&hub(), &key("k1"), at(0)).await?;
    let [first] = owed(on, 0).await?.try_into().unwrap();
    state.put_off(&first, at(60), "no answer").await?;
    assert!(owed(on, 59).await?.is_empty());
    let later = Owed {
        attempts: 1,
        due_at: at(60),
        last_error: Some("no answer".to_owned()),
        ..first.clone()
    };
    assert_eq!(owed(on, 60).await?, [later]);
    state.want(&hub(), &key("k1"), at(30)).await?;
    assert!(owed(on, 59).await?.is_empty(), "wanting it again does not hurry");
    state.give_up(&first).await?;
    state.put_off(&first, at(70), "no answer").await?;
    assert!(owed(on, 100).await?.is_empty(), "what is not owed stays so");
    Ok(())
}

async fn what_is_given_up_is_gone(on: &impl Tables) -> Kept {
    let state = on.state();
    state.give_up(&Owed::new(hub(), key("k1"), at(0))).await?;
    state.want(&hub(), &key("k1"), at(0)).await?;
    let [first] = owed(on, 0).await?.try_into().unwrap();
    state.give_up(&first).await?;
    assert!(owed(on, 100).await?.is_empty());
    assert!(state.published(&hub()).await?.is_empty());
    Ok(())
}
