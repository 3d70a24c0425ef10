//! What is logged and counted of each request. Never its body, its signature, its address or a secret.

use std::time::Duration;

use domain::{
    id::SourceName,
    inbox::Accepted,
    message::InboundMessage,
    ports::{Bodies, Inbox, Learning, PublishedKeys, Queue, SetSourceSecrets, Watch},
};
use flow::accept::Enqueued;
use runtime::telemetry::Step;

use crate::{Answer, Ingress, Receipt, Refused, gateway::Arrival, shake::Shaken};

impl<R, S, I, Q, B, T> Ingress<'_, R, S, I, Q, B, T>
where
    R: Learning,
    S: SetSourceSecrets,
    I: Inbox,
    Q: Queue<InboundMessage>,
    B: Bodies,
    T: Watch + PublishedKeys,
{
    pub(crate) fn tell_enqueued(&self, receipt: &Receipt) {
        if receipt.entry.enqueued == Enqueued::Sent {
            let step = Step { stage: "enqueue", result: "sent", ..step(receipt) };
            step.info("the worker was told");
        }
    }

    pub(crate) fn tell_accepted(&self, receipt: &Receipt, took: Duration) {
        let entry = &receipt.entry;
        let count = |name| self.metrics.count(name, Some(receipt.source.as_str()), 1);
        count("webhooks_received_total");
        let result = match entry.accepted {
            Accepted::New => "new",
            Accepted::Duplicate { same_body: true, .. } => "duplicate",
            Accepted::Duplicate { same_body: false, .. } => "same_id_other_body",
        };
        if entry.accepted != Accepted::New {
            count("webhooks_duplicate_total");
        }
        if entry.enqueued != Enqueued::Sent && entry.enqueued != Enqueued::NotNeeded {
            count("webhooks_enqueue_failed_total");
        }
        let step = Step { stage: "accept", duration: Some(took), result, ..step(receipt) };
        if result == "same_id_other_body" {
            count("webhooks_conflicting_total");
            step.warn("another body came under the id of an event; the first one stays", None);
        } else {
            step.info("accepted");
        }
    }

    pub(crate) fn tell_shaken(&self, source: &SourceName, shaken: &Shaken, took: Duration) {
        let source = Some(source.as_str());
        self.metrics.count("handshakes_total", source, 1);
        let (duration, result) = (Some(took), shaken.what);
        let step = Step { stage: "handshake", source, duration, result, ..Step::default() };
        step.info("a handshake was answered");
    }

    pub(crate) fn tell_refused(&self, arrival: &Arrival, refused: &Refused, took: Duration) {
        let known = self.known(arrival);
        let source = known.as_ref().map(SourceName::as_str);
        let (duration, result) = (Some(took), refused.code());
        let step = Step { stage: "accept", source, duration, result, ..Step::default() };
        let length = arrival.body.as_ref().map_or(0, Vec::len);
        match (refused.answer(), refused) {
            (_, Refused::KeyUnknown(_)) => {
                self.metrics.count("webhooks_key_unknown_total", source, 1);
                step.warn("asked to come again: a key is not there yet", Some(refused));
            }
            (Answer::Untrusted, Refused::Untrusted(rejected)) => {
                self.metrics.count("webhooks_signature_failed_total", source, 1);
                let (class, advice) = (rejected.class().as_str(), rejected.reason().advice());
                step.warn(&format!("refused as {class}, {length} bytes: {advice}"), Some(refused));
            }
            (Answer::Unavailable | Answer::Broken, _) => {
                self.metrics.count("webhooks_not_stored_total", source, 1);
                step.error("refused", Some(refused));
            }
            _ => {
                self.metrics.count("webhooks_refused_total", source, 1);
                step.info("refused");
            }
        }
    }
}

/// What is said of an event in each of its lines. The event is looked for under the name it is filed under.
fn step(receipt: &Receipt) -> Step<'_> {
    Step {
        source: Some(receipt.entry.key.source().as_str()),
        event_id: Some(receipt.entry.key.event_id()),
        event_type: receipt.entry.event_type.as_deref(),
        ..Step::default()
    }
}
