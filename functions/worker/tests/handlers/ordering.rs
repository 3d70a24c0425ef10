//! Objects follow the provider, in whatever order its events arrive.

use domain::{
    event::Version,
    id::TenantId,
    inbox::{Applied, Status},
    source::Handler,
    states::{MirrorStates, States},
};
use jiff::Timestamp;
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use crate::world::{End, Sent, World, permutations, run};

fn mirror(states: Option<MirrorStates>) -> World {
    let emit_to: Option<TenantId> = Some("acme".parse().unwrap());
    World::new(Handler::Mirror { emit_to, states })
}

/// The states of an order in which every order of arrival ends alike.
fn states() -> MirrorStates {
    let moves: [(&str, &[&str]); 4] = [
        ("PENDING", &["PROCESSING", "FAILED", "PAID"]),
        ("PROCESSING", &["FAILED", "PAID"]),
        ("FAILED", &["PAID"]),
        ("PAID", &[]),
    ];
    let states = States::new("PENDING", &moves).unwrap();
    assert_eq!(states.order_matters(), None);
    MirrorStates { at: "/data/object/status".to_owned(), kind: Some("order".to_owned()), states }
}

/// An event of the order `or_1`, in some state.
fn order(id: &str, version: Option<Version>, status: &str, note: u64) -> Sent {
    let body =
        json!({ "id": id, "data": { "object": { "id": "or_1", "status": status, "note": note } } });
    Sent::new(id, "order.updated", &body).about("order", "or_1", version)
}

fn deleted(id: &str, version: Option<Version>) -> Sent {
    Sent { event_type: "order.deleted".to_owned(), ..order(id, version, "PAID", 0) }
}

fn number(n: u64) -> Option<Version> {
    Some(Version::Number(n))
}

/// All orders of some events end in one state, however often each comes.
#[track_caller]
fn converge(states: Option<&MirrorStates>, all: &[Sent]) -> End {
    let end = |order: &[Sent]| {
        run(async {
            let world = mirror(states.cloned());
            world.all(order.iter().chain(order)).await;
            for sent in order {
                assert_eq!(world.row(sent).status, Status::Processed, "{sent:?}");
                assert!(!world.results(sent).is_empty(), "dropped without a word: {sent:?}");
            }
            world.end()
        })
    };
    let expected = end(all);
    for order in permutations(all) {
        assert_eq!(end(&order), expected, "{order:?}");
    }
    expected
}

fn status(end: &End) -> &str {
    let (fields, ..) = end.objects.values().next().unwrap();
    fields.pointer("/data/object/status").unwrap().as_str().unwrap()
}

/// ORD-stale-overwrites-new, D1, D5, D14, D17, L12
#[test]
fn every_order_of_four_versions_of_an_object_ends_in_the_newest() {
    let at = |second| Some(Version::Time(Timestamp::from_second(second).unwrap()));
    let text = |text: &str| Some(Version::Text(text.to_owned()));
    let parts = |a, b: &str| {
        Some(Version::Composite(vec![Version::Number(a), Version::Text(b.to_owned())]))
    };
    for versions in [
        [number(1), number(2), number(9), number(10)],
        [at(1), at(2), at(9), at(10)],
        [text("0001"), text("0002"), text("0009"), text("0010")],
        [parts(1, "b"), parts(2, "a"), parts(2, "b"), parts(10, "a")],
    ] {
        let all: Vec<_> = (1..)
            .zip(versions.clone())
            .map(|(n, version)| order(&format!("evt_{n}"), version, "any", n))
            .collect();
        let end = converge(None, &all);
        let (fields, version, _) = end.objects.values().next().unwrap();
        assert_eq!(
            (fields["data"]["object"]["note"].as_u64(), Some(version)),
            (Some(4), versions[3].as_ref())
        );
    }
}

/// ORD-same-second: of two contents of one version one wins, in every order; the other one is told to be stale.
#[test]
fn events_of_the_same_second_end_alike_in_every_order() {
    let second = number(1_760_000_000);
    let all = [
        order("evt_1", second.clone(), "active", 1),
        order("evt_2", second.clone(), "cancelled", 2),
        order("evt_3", second, "paused", 3),
    ];
    converge(None, &all);
}

/// ORD-update-before-create, D15
#[test]
fn an_update_makes_what_was_not_created_yet_and_a_late_creation_changes_nothing() {
    let mut created = order("evt_1", number(1), "PENDING", 1);
    created.event_type = "order.created".to_owned();
    let end = converge(None, &[created, order("evt_2", number(2), "PAID", 2)]);
    assert_eq!(status(&end), "PAID");
}

/// ORD-update-before-create: the deletion may come first; what is older than it revives nothing, what is newer does.
#[test]
fn a_deletion_leaves_a_tombstone() {
    let is_deleted = |end: &End| end.objects.values().next().unwrap().2;
    let (old, new) =
        (order("evt_1", number(1), "PENDING", 1), order("evt_3", number(3), "PAID", 3));
    assert!(is_deleted(&converge(None, &[old.clone(), deleted("evt_2", number(2))])));
    assert!(!is_deleted(&converge(None, &[old.clone(), deleted("evt_2", number(2)), new.clone()])));
    // Without a version it is the end.
    assert!(is_deleted(&converge(None, &[old.clone(), deleted("evt_2", None), new.clone()])));
    // States come to an end in it, whatever number it has.
    assert!(is_deleted(&converge(Some(&states()), &[old, deleted("evt_2", number(2)), new])));
}

/// D11, D13, D14, L12
#[tokio::test]
async fn a_move_that_is_not_allowed_is_told_and_neither_done_nor_sent_out() {
    let world = mirror(Some(states()));
    let (paid, late) =
        (order("evt_1", number(5), "PAID", 1), order("evt_2", number(9), "FAILED", 2));
    world.all([&paid, &late]).await;
    let object = world.object("order", "or_1").unwrap();
    assert_eq!(object.fields["data"]["object"]["note"], 1);
    let [refused] = &*world.results(&late) else { panic!() };
    assert_eq!((refused.what.as_str(), refused.result), ("object order or_1", Applied::Refused));
    assert_eq!(refused.why.as_deref(), Some("PAID → FAILED is not a move"));
    assert_eq!(world.told("acme").len(), 1);
    // The same state is no move: what is newer of it counts.
    let news = order("evt_3", number(7), "PAID", 3);
    world.all([&news, &order("evt_4", number(6), "PAID", 4)]).await;
    assert_eq!(world.object("order", "or_1").unwrap().fields["data"]["object"]["note"], 3);
    assert_eq!(world.told("acme").len(), 2);
}

/// D17, D14: a move does not ask for the number, so what goes out says its version only where that is known to grow.
#[tokio::test]
async fn what_goes_out_never_names_a_version_that_is_lower_than_before() {
    let world = mirror(Some(states()));
    world
        .all(&[order("evt_1", number(9), "PENDING", 1), order("evt_2", number(5), "PAID", 2)])
        .await;
    let versions: Vec<_> = world.out().iter().map(|event| event.aggregate_version).collect();
    assert_eq!(versions, [Some(9), None]);
}

/// ORD-stale-embedded-snapshot: what goes out is made from the state that the commit checks, so its version and what it
/// says of the object go together, and both only ever get newer.
#[test]
fn what_goes_out_about_an_object_only_gets_newer() {
    let all: Vec<_> = (1..=4).map(|n| order(&format!("evt_{n}"), number(n), "any", n)).collect();
    for order in permutations(&all) {
        run(async {
            let world = mirror(None);
            for sent in &order {
                world.put(sent).await;
            }
            let keys: Vec<_> = order.iter().map(Sent::key).collect();
            // At the same moment: each call of the store lets the others go first.
            futures_util::future::join_all(keys.iter().map(|key| world.handle(key))).await;
            world.sweeps().await;
            let mut last = 0;
            for event in world.out() {
                let version = event.aggregate_version.unwrap();
                assert!(version > last, "{version} after {last}");
                let domain::outbox::Payload::Inline(payload) = event.payload else { panic!() };
                let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
                assert_eq!(payload["data"]["object"]["note"], version);
                last = version;
            }
            assert_eq!(last, 4);
        });
    }
}

/// D6, D8: what cannot be placed is kept, and says what to do.
#[tokio::test]
async fn an_event_without_a_version_is_ignored_with_what_to_do() {
    let world = mirror(None);
    let sent = order("evt_1", None, "PAID", 1);
    world.all([&sent]).await;
    let row = world.row(&sent);
    assert_eq!(row.status, Status::Ignored);
    let why = row.next_action.unwrap();
    assert!(why.starts_with("no_version: ") && why.contains("--fetch"), "{why}");
}

/// C34: a state that the machine does not know is a person's business, and its name is not repeated.
#[tokio::test]
async fn a_state_that_nobody_declared_is_parked() {
    let world = mirror(Some(states()));
    let other = order("evt_1", number(1), "CANARY", 1);
    let none = Sent { body: "{}".to_owned(), ..order("evt_2", number(2), "", 1) };
    world.all([&other, &none]).await;
    for sent in [&other, &none] {
        let row = world.row(sent);
        let why = row.last_error.unwrap().message;
        assert_eq!(row.status, Status::DeadLetter);
        assert!(why.starts_with("no_state: ") && !why.contains("CANARY"), "{why}");
    }
    // Of other kinds it says nothing.
    let invoice = order("evt_3", number(1), "CANARY", 1).about("invoice", "in_1", number(1));
    world.all([&invoice]).await;
    assert_eq!(world.row(&invoice).status, Status::Processed);
}

/// One version, in the words of one kind.
fn version(kind: u8, n: u64) -> Version {
    match kind {
        0 => Version::Number(n),
        1 => Version::Time(Timestamp::from_microsecond(i64::try_from(n).unwrap()).unwrap()),
        2 => Version::Text(format!("{n:04}")),
        _ => Version::Composite(vec![Version::Number(n / 3), Version::Text(format!("{}", n % 3))]),
    }
}

/// Events of two objects: few versions, so that many are equal; some of them deletions, with a version or without.
fn events() -> impl Strategy<Value = Vec<Sent>> {
    let one = (
        0_u64..8,
        0_usize..4,
        any::<bool>(),
        prop::sample::select(vec![0_u8, 0, 0, 0, 1, 2]),
        0_u64..4,
    );
    (0_u8..4, prop::collection::vec(one, 1..8)).prop_map(|(kind, all)| {
        let names = ["PENDING", "PROCESSING", "FAILED", "PAID"];
        let one = |(n, (v, state, other, end, note)): (usize, (u64, usize, bool, u8, u64))| {
            let version = (end < 2).then(|| version(kind, v));
            let id = format!("evt_{n}");
            let sent = if end > 0 {
                deleted(&id, version.clone())
            } else {
                order(&id, version.clone(), names[state], note)
            };
            sent.about("order", if other { "or_2" } else { "or_1" }, version)
        };
        all.into_iter().enumerate().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// D1, D5, D16, D17, L11, L12, ORD-stale-overwrites-new, ORD-same-second
    #[test]
    fn any_order_and_any_repetition_ends_in_the_same_state(
        (sent, mixed) in events().prop_flat_map(|sent| {
            let twice: Vec<_> = sent.iter().chain(&sent).cloned().collect();
            (Just(sent), Just(twice).prop_shuffle())
        }),
        has_states in any::<bool>(),
    ) {
        let ends = [&sent, &mixed].map(|order| run(async {
            let world = mirror(has_states.then(states));
            world.all(order).await;
            world.end()
        }));
        prop_assert_eq!(&ends[0], &ends[1]);
    }

    /// L5, C31: also when all of them are handled at one moment, by as many workers.
    #[test]
    fn workers_at_the_same_moment_end_in_the_same_state(
        sent in events(), first in any::<Index>(), has_states in any::<bool>(),
    ) {
        let in_order = run(async {
            let world = mirror(has_states.then(states));
            world.all(&sent).await;
            world.end()
        });
        let at_once = run(async {
            let world = mirror(has_states.then(states));
            for sent in &sent {
                world.put(sent).await;
            }
            let mut keys: Vec<_> = sent.iter().map(Sent::key).collect();
            keys.rotate_left(first.index(sent.len()));
            futures_util::future::join_all(keys.iter().map(|key| world.handle(key))).await;
            world.sweeps().await;
            world.end()
        });
        prop_assert_eq!(in_order, at_once);
    }
}
