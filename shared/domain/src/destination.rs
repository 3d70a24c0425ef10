//! Where an endpoint is: an HTTPS URL, a queue, an event bus, or nowhere: then its owner polls.
//!
//! Queues and buses are the deployment's own account's, in its own region: an endpoint must not borrow our rights to reach
//! elsewhere, and it must not reach the stack's own queues and bus at all.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where an endpoint is. In a stored endpoint it is the one member that says its kind: `url`,
/// `queue`, `bus` or `poll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// An HTTPS URL. Checked when it was set, and again at every send: the row may be older than a rule.
    #[serde(rename = "url")]
    Https(String),
    /// An SQS queue.
    #[serde(rename = "queue")]
    Queue(QueueUrl),
    /// An EventBridge bus.
    #[serde(rename = "bus")]
    Bus(BusArn),
    /// Nowhere: its owner fetches what it gets, from behind a firewall.
    #[serde(rename = "poll")]
    Poll(Polling),
}

/// An endpoint that fetches. It has no settings of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polling {}

impl Destination {
    /// Its kind in one word: `https`, `queue`, `bus` or `poll`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Https(_) => "https",
            Self::Queue(_) => "queue",
            Self::Bus(_) => "bus",
            Self::Poll(_) => "poll",
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Https(url) => f.write_str(url),
            Self::Queue(queue) => queue.fmt(f),
            Self::Bus(bus) => bus.fmt(f),
            Self::Poll(_) => f.write_str("polling"),
        }
    }
}

/// The account and the region that a deployment runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: String,
    /// Such as `eu-central-1`.
    pub region: String,
    /// Twelve digits.
    pub account: String,
}

/// The URL of a queue, as SQS gives it: `https://sqs.<region>.amazonaws.com/<account>/<name>`. Other spellings that SQS
/// understands are refused, so that two of them cannot hide that they are one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QueueUrl {
    in_china: bool,
    region: String,
    account: String,
    name: String,
}

/// The ARN of a bus: `arn:<partition>:events:<region>:<account>:event-bus/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BusArn {
    home: Home,
    name: String,
}

/// A text that names no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not the URL of a queue as SQS gives it: https://sqs.<region>.amazonaws.com/<account>/<name>"
)]
pub struct InvalidQueue;

/// A text that names no bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is neither the name of a bus nor its ARN, arn:aws:events:<region>:<account>:event-bus/<name>"
)]
pub struct InvalidBus;

/// Why a text names no queue or bus that an endpoint of this deployment may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// It names no queue.
    #[error(transparent)]
    Queue(#[from] InvalidQueue),
    /// It names no bus.
    #[error(transparent)]
    Bus(#[from] InvalidBus),
    /// Another account or region.
    #[error(
        "it is not in this deployment's account and region ({account}, {region}); forward from a queue or a bus that is"
    )]
    Foreign {
        /// Ours.
        account: String,
        /// Ours.
        region: String,
    },
    /// One of the stack's own.
    #[error("it belongs to this deployment itself; name one of your own")]
    Own,
}

/// Where a deployment's endpoints may be, beside HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The account and the region.
    pub home: Home,
    /// The names of the stack's own queues.
    pub own_queues: Vec<String>,
    /// The name of the stack's own bus.
    pub own_bus: String,
}

impl Reach {
    /// What the ARN of the stack's own bus and the names of its queues say of it.
    pub fn new(own_bus: BusArn, own_queues: Vec<String>) -> Self {
        Self { home: own_bus.home, own_queues, own_bus: own_bus.name }
    }

    /// The queue of a URL, if it may be a destination.
    ///
    /// # Errors
    /// [`NoTarget`].
    pub fn queue(&self, url: &str) -> Result<QueueUrl, NoTarget> {
        let queue: QueueUrl = url.parse()?;
        let at_home = queue.region == self.home.region
            && queue.account == self.home.account
            && queue.in_china == (self.home.partition == CHINA);
        self.judge(at_home, self.own_queues.contains(&queue.name))?;
        Ok(queue)
    }

    /// The bus of a name or an ARN, if it may be a destination. A name means a bus of the deployment's account and region.
    ///
    /// # Errors
    /// [`NoTarget`].
    pub fn bus(&self, text: &str) -> Result<BusArn, NoTarget> {
        let bus = if is_bus_name(text) {
            BusArn { home: self.home.clone(), name: text.to_owned() }
        } else {
            text.parse()?
        };
        self.judge(bus.home == self.home, bus.name == self.own_bus)?;
        Ok(bus)
    }

    fn judge(&self, at_home: bool, is_own: bool) -> Result<(), NoTarget> {
        let Home { account, region, .. } = &self.home;
        match (at_home, is_own) {
            (false, _) => {
                Err(NoTarget::Foreign { account: account.clone(), region: region.clone() })
            }
            (true, true) => Err(NoTarget::Own),
            (true, false) => Ok(()),
        }
    }
}

impl QueueUrl {
    /// Whether it is a FIFO queue, which drops what it has seen within five minutes under the same deduplication id.
    pub fn is_fifo(&self) -> bool {
        self.name.ends_with(FIFO)
    }
}

impl BusArn {
    /// The bus's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

const FIFO: &str = ".fifo";

/// The partition whose services answer under a domain of their own.
const CHINA: &str = "aws-cn";

const DOMAIN: &str = "amazonaws.com";
const DOMAIN_IN_CHINA: &str = "amazonaws.com.cn";

fn is_region(text: &str) -> bool {
    (6..=32).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())
}

/// Up to 80 letters, digits, hyphens and underscores, the suffix of a FIFO queue included (SQS, quotas related to queues).
fn is_queue_name(text: &str) -> bool {
    let stem = text.strip_suffix(FIFO).unwrap_or(text);
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    text.len() <= 80 && !stem.is_empty() && stem.bytes().all(is_good)
}

/// Up to 256 letters, digits, dots, hyphens and underscores (`CreateEventBus`). Partners' buses, whose names hold
/// slashes, take events from their partner only.
fn is_bus_name(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=256).contains(&text.len()) && text.bytes().all(is_good)
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_china, region, account, name } = self;
        let domain = if *in_china { DOMAIN_IN_CHINA } else { DOMAIN };
        write!(f, "https://sqs.{region}.{domain}/{account}/{name}")
    }
}

impl FromStr for QueueUrl {
    type Err = InvalidQueue;

    fn from_str(text: &str) -> Result<Self, InvalidQueue> {
        let rest = text.strip_prefix("https://sqs.").ok_or(InvalidQueue)?;
        let (authority, path) = rest.split_once('/').ok_or(InvalidQueue)?;
        let (region, domain) = authority.split_once('.').ok_or(InvalidQueue)?;
        let (account, name) = path.split_once('/').ok_or(InvalidQueue)?;
        let in_china = domain == DOMAIN_IN_CHINA;
        if !(in_china || domain == DOMAIN)
            || !is_region(region)
            || !is_account(account)
            || !is_queue_name(name)
        {
            return Err(InvalidQueue);
        }
        let [region, account, name] = [region, account, name].map(str::to_owned);
        Ok(Self { in_china, region, account, name })
    }
}

impl TryFrom<String> for QueueUrl {
    type Error = InvalidQueue;

    fn try_from(text: String) -> Result<Self, InvalidQueue> {
        text.parse()
    }
}

impl From<QueueUrl> for String {
    fn from(queue: QueueUrl) -> Self {
        queue.to_string()
    }
}

impl fmt::Display for BusArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { home: Home { partition, region, account }, name } = self;
        write!(f, "arn:{partition}:events:{region}:{account}:event-bus/{name}")
    }
}

impl FromStr for BusArn {
    type Err = InvalidBus;

    fn from_str(text: &str) -> Result<Self, InvalidBus> {
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next().ok_or(InvalidBus);
        let (arn, partition, service) = (next()?, next()?, next()?);
        let (region, account, resource) = (next()?, next()?, next()?);
        let name = resource.strip_prefix("event-bus/").ok_or(InvalidBus)?;
        let partitions = ["aws", CHINA, "aws-us-gov"];
        let is_good = arn == "arn"
            && partitions.contains(&partition)
            && service == "events"
            && is_region(region)
            && is_account(account)
            && is_bus_name(name);
        if !is_good {
            return Err(InvalidBus);
        }
        let [partition, region, account, name] =
            [partition, region, account, name].map(str::to_owned);
        Ok(Self { home: Home { partition, region, account }, name })
    }
}

impl TryFrom<String> for BusArn {
    type Error = InvalidBus;

    fn try_from(text: String) -> Result<Self, InvalidBus> {
        text.parse()
    }
}

impl From<BusArn> for String {
    fn from(bus: BusArn) -> Self {
        bus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail";
    const OPS: &str = "arn:aws:events:eu-central-1:123456789012:event-bus/postern-ops";

    fn reach() -> Reach {
        let own = ["postern-InboundQueue", "postern-WakeQueue"].map(str::to_owned);
        Reach::new(OPS.parse().unwrap(), own.to_vec())
    }

    #[test]
    fn a_queue_is_named_as_sqs_names_it_and_in_no_other_way() {
        for good in [
            QUEUE,
            "https://sqs.us-gov-west-1.amazonaws.com/123456789012/a",
            "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/a-b_C9.fifo",
            &format!("https://sqs.eu-central-1.amazonaws.com/123456789012/{}", "q".repeat(80)),
        ] {
            let queue: QueueUrl = good.parse().unwrap();
            assert_eq!(queue.to_string(), good);
            assert_eq!(queue.is_fifo(), good.contains(".fifo"), "{good}");
        }
        for bad in [
            "",
            "mail",
            "arn:aws:sqs:eu-central-1:123456789012:mail",
            "http://sqs.eu-central-1.amazonaws.com/123456789012/mail",
            "https://sqs.eu-central-1.amazonaws.com.evil.example/123456789012/mail",
            "https://sqs.eu-central-1.amazonaws.com@evil.example/123456789012/mail",
            "https://evil.example/sqs.eu-central-1.amazonaws.com/123456789012/mail",
            "https://sqs.eu-central-1.amazonaws.com:8443/123456789012/mail",
            "https://eu-central-1.queue.amazonaws.com/123456789012/mail",
            "https://sqs.EU-central-1.amazonaws.com/123456789012/mail",
            "https://sqs.eu-central-1.amazonaws.com/12345678901/mail",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/mail/",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/ma%69l",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/mail?x",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/.fifo",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/a.fifo.fifo",
            &format!("https://sqs.eu-central-1.amazonaws.com/123456789012/{}", "q".repeat(81)),
            " https://sqs.eu-central-1.amazonaws.com/123456789012/mail",
        ] {
            assert_eq!(bad.parse::<QueueUrl>(), Err(InvalidQueue), "{bad:?}");
        }
    }

    #[test]
    fn a_bus_is_named_by_its_name_or_its_arn() {
        let own = "arn:aws:events:eu-central-1:123456789012:event-bus/orders";
        assert_eq!(reach().bus("orders").unwrap().to_string(), own);
        assert_eq!(reach().bus(own).unwrap().name(), "orders");
        assert_eq!(reach().bus("default").unwrap().name(), "default");
        for bad in [
            "",
            "a b",
            "aws.partner/example.com/123",
            "arn:aws:events:eu-central-1:123456789012:event-bus/",
            "arn:aws:events:eu-central-1:123456789012:rule/orders",
            "arn:aws:events:eu-central-1:123456789012:event-bus/a:b",
            "arn:aws:events::123456789012:event-bus/orders",
            "arn:aws:sqs:eu-central-1:123456789012:event-bus/orders",
            "arn:awsx:events:eu-central-1:123456789012:event-bus/orders",
            "arn:aws:events:eu-central-1:1234:event-bus/orders",
            &"b".repeat(257),
        ] {
            assert_eq!(reach().bus(bad), Err(NoTarget::Bus(InvalidBus)), "{bad:?}");
        }
    }

    #[test]
    fn only_this_account_and_region_are_reached_and_never_the_stack_itself() {
        let foreign = NoTarget::Foreign {
            account: "123456789012".to_owned(),
            region: "eu-central-1".to_owned(),
        };
        let queue = |url: &str| reach().queue(url).map(drop);
        assert_eq!(queue(QUEUE), Ok(()));
        assert_eq!(queue("mail"), Err(NoTarget::Queue(InvalidQueue)));
        let elsewhere = [
            "eu-west-1.amazonaws.com/123456789012",
            "eu-central-1.amazonaws.com/999999999999",
            "eu-central-1.amazonaws.com.cn/123456789012",
        ];
        for place in elsewhere {
            assert_eq!(
                queue(&format!("https://sqs.{place}/mail")),
                Err(foreign.clone()),
                "{place}"
            );
        }
        assert_eq!(queue(&QUEUE.replace("/mail", "/postern-WakeQueue")), Err(NoTarget::Own));
        let bus = |text: &str| reach().bus(text).map(drop);
        assert_eq!(bus(&OPS.replace("eu-central-1", "eu-west-1")), Err(foreign.clone()));
        assert_eq!(bus(&OPS.replace("123456789012", "999999999999")), Err(foreign.clone()));
        assert_eq!(bus(&OPS.replace("arn:aws:", "arn:aws-cn:")), Err(foreign));
        assert_eq!(bus(OPS), Err(NoTarget::Own));
        assert_eq!(bus("postern-ops"), Err(NoTarget::Own));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(text in "(https://sqs\\.)?[a-z0-9.:/-]{0,60}") {
            if let Ok(queue) = text.parse::<QueueUrl>() {
                prop_assert_eq!(queue.to_string(), text.as_str());
            }
            if let Ok(bus) = text.parse::<BusArn>() {
                prop_assert_eq!(bus.to_string(), text);
            }
        }
    }
}
