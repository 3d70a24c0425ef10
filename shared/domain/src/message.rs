//! What stands in the queues: names of things, and a version number. Never a body, a secret or a personal datum.

use serde::{Deserialize, Serialize};

use crate::{
    id::{EndpointId, InboxKey, SourceName, TenantId},
    lane::LaneId,
};

/// The version of the message format that this code writes and reads.
pub const VERSION: u8 = 1;

/// A message that this code cannot read.
#[derive(Debug, thiserror::Error)]
pub enum BadMessage {
    /// Not the JSON we write.
    #[error("the message is not one of ours")]
    Format(#[from] serde_json::Error),
    /// Written by a later version of this code.
    #[error("the message has version {0}, and this code reads version {VERSION}")]
    Version(u8),
    /// The names in it are not names.
    #[error("the message names something impossible")]
    Name(#[from] crate::id::InvalidId),
}

/// A value that travels through a queue.
pub trait Message: Sized + Sync {
    /// The text of the message.
    fn to_text(&self) -> String;
    /// Reads the text of a message.
    fn from_text(text: &str) -> Result<Self, BadMessage>;
    /// The fair-queue group: one noisy group does not delay the others.
    fn group(&self) -> String;
}

/// "This event may be waiting in the inbox."
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboundMessage(pub InboxKey);

/// "Something may be due in this lane."
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakeMessage(pub LaneId);

#[derive(Serialize, Deserialize)]
struct Inbound {
    v: u8,
    source: SourceName,
    event_id: String,
}

#[derive(Serialize, Deserialize)]
struct Wake {
    v: u8,
    tenant: TenantId,
    endpoint: EndpointId,
    lane: u16,
}

#[derive(Deserialize)]
struct AnyVersion {
    v: u8,
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, BadMessage> {
    // The version first: a later format may lack what this one needs.
    let AnyVersion { v } = serde_json::from_str(text)?;
    if v != VERSION {
        return Err(BadMessage::Version(v));
    }
    Ok(serde_json::from_str(text)?)
}

fn print(value: &impl Serialize) -> String {
    // Plain structs of text and numbers always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

impl Message for InboundMessage {
    fn to_text(&self) -> String {
        let (source, event_id) = (self.0.source().clone(), self.0.event_id().to_owned());
        print(&Inbound { v: VERSION, source, event_id })
    }

    fn from_text(text: &str) -> Result<Self, BadMessage> {
        let Inbound { source, event_id, .. } = parse(text)?;
        Ok(Self(InboxKey::new(source, &event_id)?))
    }

    fn group(&self) -> String {
        self.0.source().to_string()
    }
}

impl Message for WakeMessage {
    fn to_text(&self) -> String {
        let LaneId { tenant, endpoint, lane } = self.0.clone();
        print(&Wake { v: VERSION, tenant, endpoint, lane })
    }

    fn from_text(text: &str) -> Result<Self, BadMessage> {
        let Wake { tenant, endpoint, lane, .. } = parse(text)?;
        Ok(Self(LaneId { tenant, endpoint, lane }))
    }

    fn group(&self) -> String {
        self.0.tenant.to_string()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn messages_read_back_as_themselves() {
        let key = InboxKey::new("stripe".parse().unwrap(), "evt_1").unwrap();
        let inbound = InboundMessage(key);
        assert_eq!(inbound.to_text(), r#"{"v":1,"source":"stripe","event_id":"evt_1"}"#);
        assert_eq!(InboundMessage::from_text(&inbound.to_text()).unwrap(), inbound);

        let endpoint = EndpointId::new(Uuid::from_u128(7));
        let wake = WakeMessage(LaneId { tenant: "t".parse().unwrap(), endpoint, lane: 3 });
        assert_eq!(WakeMessage::from_text(&wake.to_text()).unwrap(), wake);
    }

    /// WRK-queue-message-size
    #[test]
    fn the_largest_message_stays_small() {
        let key = InboxKey::new("s".repeat(64).parse().unwrap(), &"x".repeat(512)).unwrap();
        assert!(InboundMessage(key).to_text().len() < 1024);
    }

    #[test]
    fn a_later_version_is_told_apart_from_nonsense() {
        let later = InboundMessage::from_text(r#"{"v":2,"source":{}}"#);
        assert!(matches!(later, Err(BadMessage::Version(2))));
        assert!(matches!(InboundMessage::from_text("{"), Err(BadMessage::Format(_))));
        assert!(matches!(
            InboundMessage::from_text(r#"{"v":1,"source":"A#b","event_id":"x"}"#),
            Err(BadMessage::Format(_))
        ));
    }
}
