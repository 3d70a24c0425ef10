//! A batch of SQS: everybody at once, except those that may kill the process.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use domain::{
    inbox::COUNT_FIRST_FROM,
    message::InboundMessage,
    ports::{Bodies, Inbox, Queue, Registry, State},
};
use jiff::Timestamp;
use runtime::batch::{self, NoMessageId};

use crate::{Received, Worker};

/// Messages under way at once: the whole of a batch.
const WIDTH: usize = 10;

/// Kept back of the function's time, to write down how attempts ended.
const KEPT_BACK: Duration = Duration::from_secs(2);

/// With less time than this an attempt is not begun: it would count as one, and had no chance.
const WORTH_A_TRY: Duration = Duration::from_secs(1);

/// Why a message goes back to the queue. What happened has been logged in full.
#[derive(Debug, thiserror::Error)]
enum NotSettled {
    #[error("the function has no time left for it")]
    NoTime,
    #[error("not settled: {0}")]
    Because(&'static str),
}

impl<I, S, R, B, Q, N> Worker<'_, I, S, R, B, Q, N>
where
    I: Inbox,
    S: State,
    R: Registry,
    B: Bodies,
    Q: Queue<InboundMessage>,
    N: Fn() -> Timestamp,
{
    /// Handles a batch before `ends`, when Lambda stops the function.
    ///
    /// Messages that were received [often](COUNT_FIRST_FROM) come last, one at a time: if one of them kills the process,
    /// it has no neighbours to take with it.
    ///
    /// # Errors
    /// [`NoMessageId`]: the whole batch comes again.
    pub async fn batch(
        &self,
        batch: SqsEvent,
        ends: Timestamp,
        jitter: impl Fn() -> f64,
    ) -> Result<SqsBatchResponse, NoMessageId> {
        let (mut alone, mut together) = (SqsEvent::default(), SqsEvent::default());
        (alone.records, together.records) =
            batch.records.into_iter().partition(|message| receives(message) >= COUNT_FIRST_FROM);
        let one = |message: SqsMessage| {
            let jitter = jitter();
            async move { self.one(&received(message), ends, jitter).await }
        };
        let mut response = batch::each(together, WIDTH, &one).await?;
        let alone = batch::each(alone, 1, &one).await?;
        response.batch_item_failures.extend(alone.batch_item_failures);
        Ok(response)
    }

    async fn one(
        &self,
        message: &Received,
        ends: Timestamp,
        jitter: f64,
    ) -> Result<(), NotSettled> {
        let left: Duration = ends.duration_since((self.now)()).try_into().unwrap_or_default();
        let left = left.saturating_sub(KEPT_BACK);
        if left < WORTH_A_TRY {
            return Err(NotSettled::NoTime);
        }
        let ends = ends - jiff::SignedDuration::from_secs(KEPT_BACK.as_secs().cast_signed());
        let timer = tokio::time::sleep(left);
        let outcome = self.handle_until(message, jitter, timer, ends).await;
        if outcome.is_settled() { Ok(()) } else { Err(NotSettled::Because(outcome.word())) }
    }
}

fn attribute<T: std::str::FromStr>(message: &SqsMessage, name: &str) -> Option<T> {
    message.attributes.get(name)?.parse().ok()
}

fn receives(message: &SqsMessage) -> u32 {
    attribute(message, "ApproximateReceiveCount").unwrap_or(1)
}

fn received(message: SqsMessage) -> Received {
    // Without its time a message does not look like a redrive, which would revive a parked row.
    let sent_at = attribute(&message, "SentTimestamp");
    let sent_at = sent_at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    Received {
        receives: receives(&message),
        sent_at: sent_at.unwrap_or(Timestamp::UNIX_EPOCH),
        receipt: message.receipt_handle.unwrap_or_default(),
        text: message.body.unwrap_or_default(),
    }
}
