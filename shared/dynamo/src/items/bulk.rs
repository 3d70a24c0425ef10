//! Bulk work. What is done stands as one JSON document, which its walk writes as a whole under its version; that
//! somebody stopped it stands beside, so that neither write undoes the other.

use domain::{bulk::Work, id::ReplayId, ports::Stored};

use crate::{
    item::{Item, Reader, Writer, json, n},
    keys,
};

pub(crate) fn write(work: &Work) -> Stored<Item> {
    let item = Writer::new(keys::replay(work.id), "replay")
        .put("work", json(work)?)
        .put("version", n(work.version));
    Ok(item.done())
}

pub(crate) fn read(item: &Item) -> Stored<Work> {
    let item = Reader(item);
    let by =
        |item: Reader<'_>, name: &str| Ok((item.time(name)?, item.str("cancelled_by")?.to_owned()));
    let work: Work = item.json("work")?;
    let cancelled = item.some("cancelled_at", by)?;
    Ok(Work { cancelled, version: item.number("version")?, ..work })
}

/// The entry of a work in the list.
pub(crate) fn write_listed(work: &Work) -> Item {
    Writer::new(keys::listed_replay(work.id, work.began), "replay_name").done()
}

pub(crate) fn read_listed(item: &Item) -> Stored<ReplayId> {
    let item = Reader(item);
    keys::read_listed_replay(item.str("sk")?).ok_or_else(|| item.bad("sk"))
}

#[cfg(test)]
mod tests {
    use domain::bulk::{Kind, Leg, Mark, Order, Outcome, Selection, Told};
    use domain::id::InboxKey;
    use domain::inbox::Status;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::item::{ms, s, show};

    fn a_work() -> Work {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let selection = Selection {
            status: [Status::DeadLetter, Status::Ignored].into(),
            types: vec!["invoice.*".parse().unwrap()],
            error: Some("handler_failed".to_owned()),
            from: Some(at(1_780_000_000_000)),
            to: None,
            events: Vec::new(),
        };
        let order = Order {
            id: ReplayId::new(Uuid::from_u128(3)),
            kind: Kind::Replay,
            source: "stripe".parse().unwrap(),
            selection,
            rate: 50,
            reason: "the handler is mended".to_owned(),
            actor: "arn:aws:iam::1:user/me".to_owned(),
        };
        let key = InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap();
        let mark = Mark { key, at: at(1_780_000_000_001) };
        let told = Told { event_id: "evt_1".to_owned(), outcome: Outcome::InFlight };
        Work {
            leg: Leg::Dead { shard: 2, after: Some(mark) },
            told: vec![told],
            version: 7,
            ..Work::new(order, at(1_790_000_000_123))
        }
    }

    #[test]
    fn bulk_work_reads_back_and_is_written_as_it_has_always_been() {
        let work = a_work();
        let mut item = write(&work).unwrap();
        insta::assert_snapshot!([show(&item), show(&write_listed(&work))].join("\n\n"));
        assert_eq!(read(&item).unwrap(), work);
        let at = work.began;
        item.insert("cancelled_at".to_owned(), ms(at));
        item.insert("cancelled_by".to_owned(), s("me"));
        assert_eq!(read(&item).unwrap().cancelled, Some((at, "me".to_owned())));
        assert_eq!(read_listed(&write_listed(&work)).unwrap(), work.id);
    }
}
