//! Queues in SQS.

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    types::{QueueAttributeName, SendMessageBatchRequestEntry},
};
use domain::{
    message::Message,
    ports::{Queue, StoreError, Stored},
};
use futures_util::{StreamExt as _, stream};

use crate::{aws::failed, telemetry::chain};

/// Most messages that SQS takes in one call.
const BATCH: usize = 10;

/// Calls under way at once: more would not be faster, and would hold that many batches in memory.
const WIDTH: usize = 4;

/// Longest delay that SQS takes for a message.
const MAX_DELAY: Duration = Duration::from_secs(15 * 60);

/// Longest time that SQS hides a message.
const MAX_HIDDEN: Duration = Duration::from_secs(12 * 60 * 60);

/// One queue.
#[derive(Clone, Debug)]
pub struct SqsQueue {
    client: Client,
    url: String,
}

impl SqsQueue {
    /// The queue at a URL.
    pub fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    /// Sends one message; whether it went.
    async fn send_one<M: Message>(&self, message: &M, delay: i32) -> bool {
        let sent = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_body(message.to_text())
            .message_group_id(message.group())
            .set_delay_seconds((delay > 0).then_some(delay))
            .send()
            .await;
        if let Err(error) = &sent {
            tracing::warn!(error = %chain(error), "a message was not sent");
        }
        sent.is_ok()
    }

    /// Sends up to [`BATCH`] messages; the positions of those that did not go.
    async fn send_batch<M: Message>(&self, messages: &[M], delay: i32) -> Vec<usize> {
        let everything = || (0..messages.len()).collect();
        let entries = messages.iter().enumerate().map(|(position, message)| {
            SendMessageBatchRequestEntry::builder()
                .id(position.to_string())
                .message_body(message.to_text())
                .message_group_id(message.group())
                .set_delay_seconds((delay > 0).then_some(delay))
                .build()
        });
        let entries = match entries.collect::<Result<Vec<_>, _>>() {
            Ok(entries) => entries,
            Err(error) => {
                tracing::error!(error = %chain(&error), "messages could not be put together");
                return everything();
            }
        };
        let sent = self
            .client
            .send_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries))
            .send()
            .await;
        match sent {
            Ok(answer) => {
                for entry in answer.failed() {
                    tracing::warn!(
                        code = entry.code(),
                        is_ours = entry.sender_fault(),
                        "a message was not sent"
                    );
                }
                // What is not named as sent was not sent.
                let sent: Vec<&str> = answer.successful().iter().map(|entry| entry.id()).collect();
                (0..messages.len())
                    .filter(|position| !sent.contains(&position.to_string().as_str()))
                    .collect()
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), count = messages.len(), "messages were not sent");
                everything()
            }
        }
    }
}

impl<M: Message> Queue<M> for SqsQueue {
    async fn send(&self, messages: &[M], delay: Duration) -> Vec<usize> {
        let delay = seconds(delay, MAX_DELAY);
        if let [only] = messages {
            return if self.send_one(only, delay).await { Vec::new() } else { vec![0] };
        }
        let calls: Vec<_> =
            messages.chunks(BATCH).map(|batch| self.send_batch(batch, delay)).collect();
        let lost: Vec<Vec<usize>> = stream::iter(calls).buffered(WIDTH).collect().await;
        let lost = lost.into_iter().enumerate();
        lost.flat_map(|(batch, lost)| lost.into_iter().map(move |at| batch * BATCH + at)).collect()
    }

    async fn defer(&self, receipt: &str, wait: Duration) {
        let call = self
            .client
            .change_message_visibility()
            .queue_url(&self.url)
            .receipt_handle(receipt)
            .visibility_timeout(seconds(wait, MAX_HIDDEN));
        if let Err(error) = call.send().await {
            tracing::warn!(error = %chain(&error), "a message keeps the queue's own wait");
        }
    }

    async fn visible(&self) -> Stored<u64> {
        let name = QueueAttributeName::ApproximateNumberOfMessages;
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(name.clone())
            .send()
            .await
            .map_err(failed)?;
        let text = answer.attributes().and_then(|all| all.get(&name));
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            StoreError::Unreadable(format!("the queue does not say its {}", name.as_str()))
        })
    }
}

/// Whole seconds, rounded up: a wait is never shorter than asked for.
fn seconds(wait: Duration, most: Duration) -> i32 {
    let wait = wait.min(most);
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_capped() {
        let check = |millis, expected| {
            assert_eq!(seconds(Duration::from_millis(millis), MAX_DELAY), expected);
        };
        check(0, 0);
        check(1, 1);
        check(1000, 1);
        check(1001, 2);
        check(900_000, 900);
        check(900_001, 900);
        check(u64::MAX, 900);
    }
}
