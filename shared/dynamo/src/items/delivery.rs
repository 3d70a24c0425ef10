//! A delivery, in its lane.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::{
    delivery::{Delivery, State},
    lane::LaneId,
    ports::Stored,
};

use crate::{
    expression::Expression,
    item::{Item, Reader, Writer, json, ms, n, s, seconds, word},
    keys,
};

/// A delivery that is not there yet.
pub(crate) fn write(lane: &LaneId, delivery: &Delivery) -> Stored<Item> {
    let item = Writer::new(keys::delivery(lane, delivery.event), "delivery")
        .put("type", s(&delivery.event_type))
        .put("state", word(&delivery.state))
        .put("attempts", n(delivery.attempts))
        .put("due_at", ms(delivery.due_at))
        .put("deadline", ms(delivery.deadline))
        .put("created_at", ms(delivery.created_at))
        .put_some("log", log(delivery)?)
        .put_some("finished_at", delivery.finished_at.map(ms))
        .put_some("begun", begun(delivery)?)
        .put_some("asked_at", delivery.asked_at.map(ms))
        .put_some("redelivered", delivery.redelivered.as_ref().map(json).transpose()?);
    Ok(item.done())
}

/// What an attempt changes. Only what is done for good expires: a dead delivery waits for a person.
pub(crate) fn change(after: &Delivery, retention: Duration) -> Stored<Expression> {
    let expires_at = match after.state {
        State::Succeeded | State::Cancelled => {
            after.finished_at.and_then(|at| at.saturating_add(retention).ok())
        }
        State::Pending | State::Dead => None,
    };
    Ok(Expression::new()
        .set("state", word(&after.state))
        .set("attempts", n(after.attempts))
        .set("due_at", ms(after.due_at))
        .set("deadline", ms(after.deadline))
        .set_or_clear("log", log(after)?)
        .set_or_clear("finished_at", after.finished_at.map(ms))
        .set_or_clear("begun", begun(after)?)
        .set_or_clear("expires_at", expires_at.map(seconds)))
}

/// The attempts, as JSON: they are only ever read as a whole.
fn log(delivery: &Delivery) -> Stored<Option<AttributeValue>> {
    if delivery.log.is_empty() { Ok(None) } else { json(&delivery.log).map(Some) }
}

/// The mark of an attempt that was begun, as JSON: equal marks are equal texts, for conditions.
pub(crate) fn begun(delivery: &Delivery) -> Stored<Option<AttributeValue>> {
    delivery.begun.as_ref().map(json).transpose()
}

pub(crate) fn read(item: &Item) -> Stored<Delivery> {
    let item = Reader(item);
    let event = item.str("sk")?.strip_prefix(keys::DELIVERIES).and_then(|id| id.parse().ok());
    Ok(Delivery {
        event: event.ok_or_else(|| item.bad("sk"))?,
        event_type: item.str("type")?.to_owned(),
        state: item.word("state")?,
        attempts: item.number("attempts")?,
        due_at: item.time("due_at")?,
        deadline: item.time("deadline")?,
        created_at: item.time("created_at")?,
        log: item.some("log", Reader::json)?.unwrap_or_default(),
        finished_at: item.some("finished_at", Reader::time)?,
        begun: item.some("begun", Reader::json)?,
        redelivered: item.some("redelivered", Reader::json)?,
        asked_at: item.some("asked_at", Reader::time)?,
    })
}

#[cfg(test)]
mod tests {
    use domain::{
        delivery::{Attempt, Cause, Outcome},
        id::{EndpointId, EventId},
    };
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::show;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn a_lane() -> LaneId {
        LaneId {
            tenant: "demo".parse().unwrap(),
            endpoint: EndpointId::new(Uuid::from_u128(9)),
            lane: 0,
        }
    }

    fn a_delivery() -> Delivery {
        let event = EventId::new(Uuid::from_u128(7));
        Delivery::new(
            event,
            "invoice.paid".to_owned(),
            at(1_790_345_600_000),
            at(1_790_000_000_000),
        )
    }

    fn tried() -> Delivery {
        let answered = Outcome::Answered { status: 503, retry_after_ms: Some(2_000) };
        let attempt = |number, outcome| Attempt {
            number,
            at: at(1_790_000_000_500),
            duration_ms: 120,
            outcome,
            excerpt: "busy".to_owned(),
        };
        let log = vec![attempt(1, answered), attempt(2, Outcome::Failed { cause: Cause::Reset })];
        Delivery { attempts: 2, log, ..a_delivery() }
    }

    #[test]
    fn a_delivery_reads_back_as_it_was_put() {
        let ended = Delivery { state: State::Dead, finished_at: Some(at(9)), ..tried() };
        let by = domain::id::RedeliveryId::new(Uuid::from_u128(3));
        let day = Duration::from_secs(86_400);
        let asked = domain::redelivery::due_again(&ended, by, true, (at(9), at(9), day));
        for delivery in [a_delivery(), tried(), tried().begins("holder-1", at(7)), ended, asked] {
            assert_eq!(read(&write(&a_lane(), &delivery).unwrap()).unwrap(), delivery);
        }
    }

    #[test]
    fn a_delivery_is_written_as_it_has_always_been() {
        insta::assert_snapshot!(show(&write(&a_lane(), &tried()).unwrap()));
    }

    #[test]
    fn only_what_is_done_for_good_expires() {
        let day = Duration::from_secs(86_400);
        let expiry = |state| {
            let after = Delivery { state, finished_at: Some(at(1_000)), ..tried() };
            change(&after, day).unwrap().values().unwrap().get(":expires_at").cloned()
        };
        assert_eq!(expiry(State::Succeeded), Some(n(86_401)));
        assert_eq!(expiry(State::Cancelled), Some(n(86_401)));
        assert_eq!(expiry(State::Dead), None);
        assert_eq!(expiry(State::Pending), None);
    }
}
