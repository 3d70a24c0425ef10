//! A redelivery of many. What is done stands as one JSON document, which its walk writes as a whole under its version;
//! that somebody halted it stands beside, so that neither write undoes the other.

use domain::{id::RedeliveryId, ports::Stored, redelivery::Work};

use crate::{
    item::{Item, Reader, Writer, json, n},
    keys,
};

pub(crate) fn write(work: &Work) -> Stored<Item> {
    let item = Writer::new(keys::redelivery(work.id), "redelivery")
        .put("work", json(work)?)
        .put("version", n(work.version));
    Ok(item.done())
}

pub(crate) fn read(item: &Item) -> Stored<Work> {
    let item = Reader(item);
    let work: Work = item.json("work")?;
    let (cancelled, paused) = (
        item.some("cancelled_at", |item, at| {
            Ok((item.time(at)?, item.str("cancelled_by")?.to_owned()))
        })?,
        item.some("paused_at", |item, at| Ok((item.time(at)?, item.str("paused_by")?.to_owned())))?,
    );
    Ok(Work { cancelled, paused, version: item.number("version")?, ..work })
}

/// The entry of a work in its tenant's list.
pub(crate) fn write_listed(work: &Work) -> Item {
    Writer::new(keys::listed_redelivery(&work.tenant, work.id, work.began), "redelivery_name")
        .done()
}

pub(crate) fn read_listed(item: &Item) -> Stored<RedeliveryId> {
    let item = Reader(item);
    keys::read_listed_redelivery(item.str("sk")?).ok_or_else(|| item.bad("sk"))
}

#[cfg(test)]
mod tests {
    use domain::{
        id::{EndpointId, EventId},
        redelivery::{Leg, Order, Outcome, Selection, Told},
    };
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::{ms, s, show};

    #[test]
    fn a_redelivery_reads_back_and_is_written_as_it_has_always_been() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let (event, endpoint) =
            (EventId::new(Uuid::from_u128(7)), EndpointId::new(Uuid::from_u128(9)));
        let order = Order {
            id: RedeliveryId::new(Uuid::from_u128(3)),
            tenant: "acme".parse().unwrap(),
            endpoints: vec![endpoint],
            is_named: true,
            selection: Selection {
                include_cancelled: true,
                types: vec!["invoice.*".parse().unwrap()],
                from: Some(at(1_780_000_000_000)),
                ..Selection::default()
            },
            rate: 10,
            reason: "the receiver is mended".to_owned(),
            actor: "arn:aws:iam::1:user/me".to_owned(),
        };
        let work = Work {
            leg: Leg::Lane { endpoint: 0, lane: 2, after: Some(event) },
            told: vec![Told { event, endpoint, outcome: Outcome::InFlight }],
            version: 7,
            ..Work::new(order, at(1_790_000_000_123))
        };
        let mut item = write(&work).unwrap();
        insta::assert_snapshot!([show(&item), show(&write_listed(&work))].join("\n\n"));
        assert_eq!(read(&item).unwrap(), work);
        for name in ["cancelled", "paused"] {
            item.insert(format!("{name}_at"), ms(work.began));
            item.insert(format!("{name}_by"), s("me"));
        }
        let halted = read(&item).unwrap();
        assert_eq!(halted.cancelled, Some((work.began, "me".to_owned())));
        assert_eq!(halted.paused, halted.cancelled);
        assert_eq!(read_listed(&write_listed(&work)).unwrap(), work.id);
    }
}
