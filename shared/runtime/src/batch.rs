//! Answering an SQS batch one message at a time.

use std::{any::Any, collections::BTreeSet, error::Error, panic::AssertUnwindSafe};

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use crate::telemetry::chain;

/// A message without an id cannot be reported, so the whole batch has to come again.
#[derive(Debug, thiserror::Error)]
#[error("a message of the batch has no id; the whole batch goes back to the queue")]
pub struct NoMessageId;

/// Runs `work` on every message, at most `width` at once, and reports those that did not end well.
///
/// A message fails unless its work said otherwise: a panic, in making the work or in running it, fails that message
/// and no other.
///
/// # Errors
/// [`NoMessageId`], before any work is done. Answering it with success would lose the message.
pub async fn each<F, Fut, E>(
    batch: SqsEvent,
    width: usize,
    work: F,
) -> Result<SqsBatchResponse, NoMessageId>
where
    F: Fn(SqsMessage) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Error + 'static,
{
    let messages = batch.records.into_iter().map(|message| match &message.message_id {
        Some(id) if !id.is_empty() => Ok((id.clone(), message)),
        _ => Err(NoMessageId),
    });
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let all: BTreeSet<String> = messages.iter().map(|(id, _)| id.clone()).collect();

    let work = &work;
    let ended: Vec<(String, bool)> = stream::iter(messages)
        .map(|(id, message)| async move {
            let ended = AssertUnwindSafe(async move { work(message).await }).catch_unwind().await;
            let is_done = is_done(&id, &ended);
            (id, is_done)
        })
        .buffer_unordered(width.max(1))
        .collect()
        .await;

    Ok(answer(all, &ended))
}

fn is_done<E: Error + 'static>(
    id: &str,
    ended: &Result<Result<(), E>, Box<dyn Any + Send>>,
) -> bool {
    match ended {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(message_id = id, error = %chain(error), "a message goes back to the queue");
            false
        }
        // The panic hook has written the place already; the payload may hold anything.
        Err(_) => {
            tracing::error!(message_id = id, "a message panicked and goes back to the queue");
            false
        }
    }
}

fn answer(all: BTreeSet<String>, ended: &[(String, bool)]) -> SqsBatchResponse {
    // One id twice in a batch: both must have ended well.
    let well = |id: &String| {
        let mut of_it = ended.iter().filter(|(other, _)| other == id).peekable();
        of_it.peek().is_some() && of_it.all(|(_, is_done)| *is_done)
    };
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = all
        .into_iter()
        .filter(|id| !well(id))
        .map(|id| {
            let mut item = BatchItemFailure::default();
            item.item_identifier = id;
            item
        })
        .collect();
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no")]
    struct No;

    fn batch(ids: &[Option<&str>]) -> SqsEvent {
        let mut batch = SqsEvent::default();
        for id in ids {
            let mut message = SqsMessage::default();
            message.message_id = id.map(str::to_owned);
            batch.records.push(message);
        }
        batch
    }

    fn failed(response: &SqsBatchResponse) -> Vec<&str> {
        response.batch_item_failures.iter().map(|item| item.item_identifier.as_str()).collect()
    }

    async fn by_name(message: SqsMessage) -> Result<(), No> {
        tokio::task::yield_now().await;
        match message.message_id.as_deref() {
            Some("bad") => Err(No),
            Some("panics") => panic!("a handler's bug"),
            _ => Ok(()),
        }
    }

    /// WRK-swallowed-error-drops-batch
    #[tokio::test]
    async fn a_failure_or_a_panic_fails_its_own_message_only() {
        let ids = [Some("a"), Some("bad"), Some("b"), Some("panics"), Some("c")];
        let response = each(batch(&ids), 2, by_name).await.unwrap();
        assert_eq!(failed(&response), ["bad", "panics"]);
    }

    #[tokio::test]
    async fn a_panic_before_the_first_await_fails_its_own_message_only() {
        let work = |message: SqsMessage| {
            assert!(message.message_id.as_deref() != Some("panics"));
            async { Ok::<(), No>(()) }
        };
        let response = each(batch(&[Some("panics"), Some("a")]), 1, work).await.unwrap();
        assert_eq!(failed(&response), ["panics"]);
    }

    #[tokio::test]
    async fn a_message_without_an_id_fails_the_batch_before_any_work() {
        for missing in [None, Some("")] {
            let runs = AtomicUsize::new(0);
            let work = |_| async {
                runs.fetch_add(1, Ordering::Relaxed);
                Ok::<(), No>(())
            };
            assert!(each(batch(&[Some("a"), missing]), 4, work).await.is_err());
            assert_eq!(runs.into_inner(), 0);
        }
    }

    #[tokio::test]
    async fn never_more_than_the_width_run_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let ids: Vec<Option<&str>> = ids.iter().map(|id| Some(id.as_str())).collect();
        let work = |_| async {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::Relaxed);
            Ok::<(), No>(())
        };
        assert!(failed(&each(batch(&ids), 3, work).await.unwrap()).is_empty());
        assert_eq!(most.into_inner(), 3);
    }

    /// WRK-batch-response-shape
    #[tokio::test]
    async fn the_answer_has_the_shape_that_lambda_reads() {
        let response = each(batch(&[Some("bad"), Some("a")]), 4, by_name).await.unwrap();
        let json = serde_json::to_value(&response).unwrap();
        assert_eq!(json, serde_json::json!({"batchItemFailures": [{"itemIdentifier": "bad"}]}));
        let response = each(batch(&[Some("a")]), 4, by_name).await.unwrap();
        assert_eq!(
            serde_json::to_value(&response).unwrap(),
            serde_json::json!({"batchItemFailures": []})
        );
    }

    #[test]
    fn a_message_that_never_ended_is_a_failure() {
        let all = ["a", "b"].map(str::to_owned).into();
        let response = answer(all, &[("a".to_owned(), true)]);
        assert_eq!(failed(&response), ["b"]);
    }
}
