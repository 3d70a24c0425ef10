//! Orders: what may become of one, as a table.

use domain::{
    event::{Object, Version},
    id::TenantId,
    plan::{Change, Emit, Plan},
    states::{Move, States},
};
use serde_json::json;

use super::{
    super::{Current, Event},
    effect, once,
    said::Proposal,
};

/// The states of an order, and where each may go. `FAILED` is not the end: a customer whose card is refused takes
/// another one. `PAID` is.
///
/// Every move leads further down. So an order ends in the lowest line that any of its events names, whichever of them
/// comes first, last or twice.
pub(super) const MOVES: [(&str, &[&str]); 4] = [
    ("PENDING", &["PROCESSING", "FAILED", "PAID"]),
    ("PROCESSING", &["FAILED", "PAID"]),
    ("FAILED", &["PAID"]),
    ("PAID", &[]),
];

/// An event proposes where an order should be, and the table answers. The commit checks that the order is still where the
/// table saw it; if it is not, the event is planned again.
pub(super) fn propose(event: &Event<'_>, proposal: &Proposal, current: &Current) -> Plan {
    let order = proposal.order();
    let read = current.of(&order);
    match states().propose(read.and_then(status), proposal.to) {
        Move::Allowed => moves(event, proposal, read),
        Move::Same => Plan::nothing(),
        Move::Refused(why) => Change::refused(order, why).into(),
    }
}

/// The order is there now; who listens hears of it, and from an order that is paid its seller has something to get.
fn moves(event: &Event<'_>, proposal: &Proposal, read: Option<&Object>) -> Plan {
    let Proposal { to, amount, currency, order: id, seller } = proposal;
    let order = json!({ "order": id, "status": to, "amount": amount, "currency": currency });
    let told = Emit::new(
        event.tenant.cloned().unwrap_or_else(TenantId::internal),
        format!("order.{}", to.to_ascii_lowercase()),
        id,
        order.to_string(),
    );
    let change = Change::unchanged(proposal.order(), read, Version::Number(line(to)), order)
        .then_emit(told.aggregate_version(line(to)));
    let earned = seller.as_ref().filter(|_| *to == "PAID").map(|seller| {
        let due = json!({ "order": id, "seller": seller, "amount": amount, "currency": currency });
        once(&["payout", id]).then_emit(effect("payout.due", id, &due))
    });
    [change].into_iter().chain(earned).collect()
}

/// The table as a state machine. The first that is heard of an order may name any state.
fn states() -> States {
    let names = |states: &[&str]| states.iter().map(|&state| state.to_owned()).collect();
    let moves = MOVES.iter().map(|&(from, to)| (from.to_owned(), names(to)));
    States { start: "PENDING".to_owned(), moves: moves.collect() }
}

fn status(order: &Object) -> Option<&str> {
    order.fields.get("status")?.as_str()
}

/// How far down the table a state is. It only grows, so it is the order's version.
fn line(state: &str) -> u64 {
    (1..).zip(MOVES).find(|(_, (name, _))| *name == state).map_or(0, |(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D11, D12, D15: events may come in any order.
    #[test]
    fn every_order_of_arrival_ends_alike() {
        assert_eq!(states().order_matters(), None);
    }

    /// D17: the version of an order only grows.
    #[test]
    fn every_move_leads_further_down() {
        for (from, to) in MOVES {
            assert!(line(from) > 0);
            assert!(to.iter().all(|to| line(to) > line(from)), "{from} → {to:?}");
        }
        assert_eq!(line("REFUNDED"), 0);
    }

    /// The table is read without the checks of a machine that somebody configured, so they are made here.
    #[test]
    fn the_table_is_a_machine() {
        assert_eq!(States::new("PENDING", &MOVES), Ok(states()));
    }
}
