//! What the owner of an endpoint is told beside it: the endpoint itself is what does not work.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Endpoint;

/// Something that the owner of an endpoint has to hear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What has happened.
    pub what: What,
    /// Since when it is so. Of dead deliveries: the beginning of their day (UTC).
    pub since: Timestamp,
    /// Why, in one word; empty if the rest says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What has happened to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Every attempt has failed for a day.
    Failing,
    /// Every attempt has failed for three days.
    FailingLong,
    /// It gets nothing until somebody enables it; its deliveries are held.
    Disabled,
    /// The first delivery of a day that was given up.
    Dead,
}

impl What {
    /// Its name on the bus.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failing => "endpoint.failing",
            Self::FailingLong => "endpoint.failing_long",
            Self::Disabled => "endpoint.disabled",
            Self::Dead => "endpoint.delivery_dead",
        }
    }
}

impl Notice {
    /// What it is known by. A notice that is told twice has the same id.
    pub fn id(&self, endpoint: &Endpoint) -> String {
        format!("{}/{}/{}", endpoint.id, self.what.name(), self.since.as_millisecond())
    }

    /// What has happened and what to do, in a sentence.
    pub fn words(&self) -> String {
        let Self { since, reason, .. } = self;
        match self.what {
            What::Failing | What::FailingLong => format!(
                "Every delivery to this endpoint has failed since {since}. Deliveries are tried again until their \
                 deadlines; look at the endpoint's last attempts."
            ),
            What::Disabled => format!(
                "This endpoint was disabled at {since} ({reason}). Its deliveries are held; enable it when it works again."
            ),
            What::Dead => {
                "A delivery to this endpoint was given up. It can be redelivered; this is said once a day.".to_owned()
            }
        }
    }
}
