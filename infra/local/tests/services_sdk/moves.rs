//! Message move tasks, over the SDK: what the console does when an operator redrives.

use std::time::Duration;

use aws_sdk_sqs::{
    error::ProvideErrorMetadata as _,
    operation::{
        cancel_message_move_task::CancelMessageMoveTaskError,
        start_message_move_task::StartMessageMoveTaskError,
    },
    types::{
        ListMessageMoveTasksResultEntry, MessageAttributeValue, MessageSystemAttributeName,
        QueueAttributeName,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use local::services::{Kind, Message, Rule, Service, When};

use crate::{DEAD, DEAD_URL, Host, OTHER, QUEUE, QUEUE_URL, client};

const NO_WAIT: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Sends so many messages and receives them until SQS gives them up.
async fn bury(host: &Host, queue: &str, count: usize) {
    let queues = &host.services.queues;
    for n in 0..count {
        queues.send(queue, &format!("{queue} {n}")).await.unwrap();
    }
    for _ in 0..2 {
        while !queues.receive(queue, 10, NO_WAIT).await.unwrap().is_empty() {}
        host.clock.advance(Duration::from_secs(31));
    }
    assert!(queues.receive(queue, 10, NO_WAIT).await.unwrap().is_empty());
}

async fn drain(host: &Host, queue: &str) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        let page = host.services.queues.receive(queue, 10, NO_WAIT).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn latest(client: &aws_sdk_sqs::Client) -> ListMessageMoveTasksResultEntry {
    let listed = client.list_message_move_tasks().source_arn(DEAD).send().await.unwrap();
    listed.results()[0].clone()
}

/// WRK-dlq-redrive: a redriven message is a new one with the old one's content: its age and its receives begin again.
#[tokio::test]
async fn a_moved_message_is_a_new_message_with_the_same_content() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let attribute =
        MessageAttributeValue::builder().data_type("String").string_value("00-1").build().unwrap();
    let send = client.send_message().queue_url(QUEUE_URL).message_body("{\"id\":1}");
    let send = send.message_group_id("stripe").message_attributes("traceparent", attribute);
    let sent = send.send().await.unwrap();
    bury(&host, QUEUE, 0).await;
    let buried = host.services.queues.receive(DEAD, 1, NO_WAIT).await.unwrap().remove(0);
    assert_eq!(Some(buried.id.as_str()), sent.message_id(), "SQS's own move keeps it");
    host.services.queues.change_visibility(DEAD, &buried.receipt, NO_WAIT).await.unwrap();

    let started = client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
    let running = latest(&client).await;
    assert_eq!(running.status(), Some("RUNNING"));
    assert_eq!(running.task_handle(), started.task_handle());
    assert_eq!(running.source_arn(), Some(DEAD));
    assert_eq!(
        (running.destination_arn(), running.max_number_of_messages_per_second()),
        (None, None)
    );
    assert_eq!(running.started_timestamp(), host.clock.now_ms());
    host.clock.advance(SECOND);
    let done = latest(&client).await;
    assert_eq!((done.status(), done.task_handle()), (Some("COMPLETED"), None));
    assert_eq!(done.approximate_number_of_messages_moved(), 1);
    assert_eq!(done.approximate_number_of_messages_to_move(), Some(1));

    let receive = client.receive_message().queue_url(QUEUE_URL).message_attribute_names("All");
    let received = receive
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send()
        .await
        .unwrap();
    let [message] = received.messages() else { panic!("{received:?}") };
    assert_ne!(message.message_id(), sent.message_id());
    assert_eq!(message.body(), Some("{\"id\":1}"));
    assert_eq!(message.message_attributes().unwrap()["traceparent"].string_value(), Some("00-1"));
    let system = message.attributes().unwrap();
    let now = host.clock.now_ms().to_string();
    assert_eq!(system[&MessageSystemAttributeName::ApproximateReceiveCount], "1");
    assert_eq!(system[&MessageSystemAttributeName::SentTimestamp], now);
    assert_eq!(system[&MessageSystemAttributeName::MessageGroupId], "stripe");
    assert!(!system.contains_key(&MessageSystemAttributeName::DeadLetterQueueSourceArn));
    assert_eq!(host.services.queues.counts(DEAD).unwrap().visible, 0);
    // its time in the queue begins again: it had four days from the first send
    host.clock.advance(Duration::from_secs(345_000));
    assert_eq!(host.services.queues.counts(QUEUE).unwrap().visible, 1);
}

#[tokio::test]
async fn each_message_goes_back_to_its_own_queue_or_all_to_the_one_that_is_named() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let bodies = async |queue: &str| {
        let all = drain(&host, queue).await;
        all.into_iter().map(|message| message.body).collect::<Vec<_>>()
    };
    bury(&host, QUEUE, 2).await;
    bury(&host, OTHER, 1).await;
    client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
    host.clock.advance(SECOND);
    assert_eq!(
        bodies(QUEUE).await,
        [format!("{QUEUE} 0"), format!("{QUEUE} 1")],
        "the oldest first"
    );
    assert_eq!(bodies(OTHER).await, [format!("{OTHER} 0")]);
    // they fail again: the same once more, to another place
    for queue in [QUEUE, OTHER] {
        for _ in 0..2 {
            host.clock.advance(Duration::from_secs(31));
            drain(&host, queue).await;
        }
    }
    let start = client.start_message_move_task().source_arn(DEAD).destination_arn(OTHER);
    start.max_number_of_messages_per_second(500).send().await.unwrap();
    host.clock.advance(SECOND);
    let done = latest(&client).await;
    assert_eq!((done.status(), done.destination_arn()), (Some("COMPLETED"), Some(OTHER)));
    assert_eq!(done.max_number_of_messages_per_second(), Some(500));
    assert_eq!((bodies(QUEUE).await.len(), bodies(OTHER).await.len()), (0, 3));
}

#[tokio::test]
async fn a_move_keeps_to_its_rate_and_stops_where_it_is_cancelled() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 9).await;
    let start = client.start_message_move_task().source_arn(DEAD);
    let started = start.max_number_of_messages_per_second(2).send().await.unwrap();
    let handle = started.task_handle().unwrap();
    for expected in [0, 0, 1, 1, 2] {
        assert_eq!(latest(&client).await.approximate_number_of_messages_moved(), expected);
        host.clock.advance(Duration::from_millis(250));
    }
    let cancel = || client.cancel_message_move_task().task_handle(handle).send();
    assert_eq!(cancel().await.unwrap().approximate_number_of_messages_moved(), 2);
    let cancelling = latest(&client).await;
    assert_eq!((cancelling.status(), cancelling.task_handle()), (Some("CANCELLING"), None));
    let again = cancel().await.unwrap_err().into_service_error();
    assert!(matches!(again, CancelMessageMoveTaskError::UnsupportedOperation(_)), "{again:?}");
    host.clock.advance(SECOND);
    let cancelled = latest(&client).await;
    assert_eq!(cancelled.status(), Some("CANCELLED"));
    assert_eq!(cancelled.approximate_number_of_messages_moved(), 2);
    assert_eq!(cancelled.approximate_number_of_messages_to_move(), Some(9));
    assert_eq!(drain(&host, QUEUE).await.len(), 2, "what is moved stays moved");
    assert_eq!(host.services.queues.counts(DEAD).unwrap().visible, 7);
    // and the rest can be moved later
    client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
    host.clock.advance(SECOND);
    assert_eq!(drain(&host, QUEUE).await.len(), 7);
}

#[tokio::test]
async fn what_somebody_holds_or_what_comes_later_is_not_moved() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 3).await;
    let held = host.services.queues.receive(DEAD, 1, NO_WAIT).await.unwrap().remove(0);
    let start = client.start_message_move_task().source_arn(DEAD);
    start.max_number_of_messages_per_second(1).send().await.unwrap();
    assert_eq!(latest(&client).await.approximate_number_of_messages_to_move(), Some(2));
    host.clock.advance(SECOND);
    bury_while_moving(&host).await;
    let done = latest(&client).await;
    assert_eq!(
        (done.status(), done.approximate_number_of_messages_moved()),
        (Some("COMPLETED"), 2)
    );
    let left: Vec<_> = drain(&host, DEAD).await.into_iter().map(|message| message.body).collect();
    assert_eq!(left, ["later".to_owned()]);
    host.services.queues.delete(DEAD, &held.receipt).await.unwrap();
}

/// Another message is given up by its queue, within the visibility of what is held.
async fn bury_while_moving(host: &Host) {
    let queues = &host.services.queues;
    let id = queues.send(OTHER, "later").await.unwrap();
    for _ in 0..2 {
        let message = queues.receive(OTHER, 1, NO_WAIT).await.unwrap().remove(0);
        assert_eq!(message.id, id);
        queues.change_visibility(OTHER, &message.receipt, NO_WAIT).await.unwrap();
    }
    assert!(queues.receive(OTHER, 1, NO_WAIT).await.unwrap().is_empty());
    assert!(queues.counts(DEAD).unwrap().visible > 0);
    host.clock.advance(SECOND);
}

#[tokio::test]
async fn a_waiting_receive_is_woken_by_what_is_moved() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 1).await;
    let queues = host.services.queues.clone();
    let waiting = queues.receive(QUEUE, 1, Duration::from_secs(600));
    let moving = async {
        client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
        host.clock.advance(SECOND);
    };
    let within = Duration::from_secs(20);
    let (received, ()) =
        tokio::time::timeout(within, async { tokio::join!(waiting, moving) }).await.unwrap();
    assert_eq!(received.unwrap().len(), 1);
}

#[tokio::test]
async fn a_host_that_was_killed_goes_on_where_it_was() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 5).await;
    let start = client.start_message_move_task().source_arn(DEAD);
    let started = start.max_number_of_messages_per_second(1).send().await.unwrap();
    host.clock.advance(2 * SECOND);
    assert_eq!(latest(&client).await.approximate_number_of_messages_moved(), 2);
    // an hour later a second host on the same folder, while the first has neither closed nor flushed anything: as after
    // kill -9
    let later = host.clock.now_ms() + 3_600_000;
    let next = Host::of(&crate::wiring(), state.path(), false, later).await;
    let client = client!(aws_sdk_sqs, next);
    let going_on = latest(&client).await;
    assert_eq!(
        (going_on.status(), going_on.task_handle()),
        (Some("RUNNING"), started.task_handle())
    );
    assert_eq!(going_on.approximate_number_of_messages_moved(), 2, "it was not there to send more");
    next.clock.advance(SECOND);
    assert_eq!(latest(&client).await.approximate_number_of_messages_moved(), 3);
    next.clock.advance(2 * SECOND);
    let done = latest(&client).await;
    assert_eq!(
        (done.status(), done.approximate_number_of_messages_moved()),
        (Some("COMPLETED"), 5)
    );
    assert_eq!(next.services.queues.counts(QUEUE).unwrap().visible, 5, "each once");
    host.stop().await;
}

/// A message that was sent to the dead-letter queue has no queue to go back to. DESIGN 6
#[tokio::test]
async fn a_message_without_an_origin_makes_the_move_fail_and_stays() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    host.services.queues.send(DEAD, "sent here").await.unwrap();
    client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
    host.clock.advance(SECOND);
    let failed = latest(&client).await;
    assert_eq!(failed.status(), Some("FAILED"));
    assert_eq!(failed.failure_reason(), Some("CouldNotDetermineMessageSource"));
    assert_eq!(host.services.queues.counts(DEAD).unwrap().visible, 1);
    // with a destination it goes
    client.start_message_move_task().source_arn(DEAD).destination_arn(QUEUE).send().await.unwrap();
    host.clock.advance(SECOND);
    assert_eq!(latest(&client).await.status(), Some("COMPLETED"));
    assert_eq!(drain(&host, QUEUE).await.len(), 1);
}

#[tokio::test]
async fn a_queue_has_one_move_at_a_time_and_lists_its_last_ten() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 1).await;
    let start = || client.start_message_move_task().source_arn(DEAD).send();
    start().await.unwrap();
    let second = start().await.unwrap_err();
    assert_eq!(second.code(), Some("InvalidParameterValue"));
    assert!(second.message().unwrap_or_default().contains("already a task running"), "{second:?}");
    // one with nothing to do is over at once
    for _ in 0..11 {
        host.clock.advance(SECOND);
        start().await.unwrap();
    }
    let list = || client.list_message_move_tasks().source_arn(DEAD);
    assert_eq!(list().send().await.unwrap().results().len(), 1);
    let ten = list().max_results(10).send().await.unwrap();
    let started: Vec<_> = ten.results().iter().map(|one| one.started_timestamp()).collect();
    assert_eq!(started.len(), 10);
    assert!(started.is_sorted_by(|a, b| a > b), "the latest first: {started:?}");
    let eleven = list().max_results(11).send().await.unwrap_err();
    assert_eq!(eleven.code(), Some("InvalidParameterValue"));
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused_in_the_words_of_sqs() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    let start = || client.start_message_move_task();
    let nowhere = "arn:aws:sqs:us-east-1:000000000000:nowhere";
    let unknown = start().source_arn(nowhere).send().await.unwrap_err();
    assert_eq!(unknown.raw_response().unwrap().status().as_u16(), 404);
    let unknown = unknown.into_service_error();
    assert!(
        matches!(unknown, StartMessageMoveTaskError::ResourceNotFoundException(_)),
        "{unknown:?}"
    );
    let unknown = start().source_arn(DEAD).destination_arn(nowhere).send().await.unwrap_err();
    assert!(unknown.message().unwrap_or_default().contains("DestinationArn"), "{unknown:?}");
    let unknown = client.list_message_move_tasks().source_arn(nowhere).send().await.unwrap_err();
    assert_eq!(unknown.code(), Some("ResourceNotFoundException"));
    let invalid = async |start: aws_sdk_sqs::operation::start_message_move_task::builders::StartMessageMoveTaskFluentBuilder| {
        let error = start.send().await.unwrap_err();
        assert_eq!(error.code(), Some("InvalidParameterValue"), "{error:?}");
    };
    invalid(start().source_arn(QUEUE)).await;
    invalid(start().source_arn(DEAD).destination_arn(DEAD)).await;
    invalid(start().source_arn("dead")).await;
    for rate in [0, 501, -1] {
        invalid(start().source_arn(DEAD).max_number_of_messages_per_second(rate)).await;
    }
    let cancel = |handle: String| client.cancel_message_move_task().task_handle(handle).send();
    let of = |source: &str| {
        STANDARD.encode(format!("{{\"taskId\":\"none\",\"sourceArn\":\"{source}\"}}"))
    };
    let nonsense = cancel("nonsense".to_owned()).await.unwrap_err();
    assert_eq!(nonsense.code(), Some("InvalidParameterValue"));
    for source in [nowhere, DEAD] {
        let error = cancel(of(source)).await.unwrap_err().into_service_error();
        let is_unknown = matches!(error, CancelMessageMoveTaskError::ResourceNotFoundException(_));
        assert!(is_unknown, "{source}: {error:?}");
    }
    assert!(
        client
            .list_message_move_tasks()
            .source_arn(DEAD)
            .send()
            .await
            .unwrap()
            .results()
            .is_empty()
    );
}

/// A fault before a call prevents the move; one after it leaves a move that nobody has the handle of.
#[tokio::test]
async fn a_start_whose_answer_is_lost_has_begun() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, QUEUE, 2).await;
    let fault = |action: &str, when: When, error: Kind| {
        host.services.faults.add(Rule {
            service: Service::Sqs,
            action: action.to_owned(),
            function: None,
            when,
            error,
            skip: 0,
            times: 1,
            delay_ms: 0,
        });
    };
    let start = || {
        client
            .start_message_move_task()
            .source_arn(DEAD)
            .max_number_of_messages_per_second(1)
            .send()
    };
    fault("StartMessageMoveTask", When::Before, Kind::Internal);
    assert!(start().await.is_err());
    assert!(
        client
            .list_message_move_tasks()
            .source_arn(DEAD)
            .send()
            .await
            .unwrap()
            .results()
            .is_empty()
    );
    fault("StartMessageMoveTask", When::After, Kind::Drop);
    assert!(start().await.is_err());
    assert_eq!(start().await.unwrap_err().code(), Some("InvalidParameterValue"), "it runs");
    let handle = latest(&client).await.task_handle().unwrap().to_owned();
    let cancel = || client.cancel_message_move_task().task_handle(&handle).send();
    fault("CancelMessageMoveTask", When::Before, Kind::Throttle);
    assert_eq!(cancel().await.unwrap_err().code(), Some("RequestThrottled"));
    assert_eq!(latest(&client).await.status(), Some("RUNNING"));
    fault("CancelMessageMoveTask", When::After, Kind::Drop);
    assert!(cancel().await.is_err());
    host.clock.advance(SECOND);
    assert_eq!(latest(&client).await.status(), Some("CANCELLED"));
    assert_eq!(host.services.queues.counts(DEAD).unwrap().visible, 2);
}

#[tokio::test]
async fn a_destination_that_is_no_more_ends_the_move() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), false).await;
    let client = client!(aws_sdk_sqs, host);
    bury(&host, OTHER, 2).await;
    client.start_message_move_task().source_arn(DEAD).send().await.unwrap();
    host.stop().await;
    // the template has changed meanwhile
    let mut wiring = crate::wiring();
    wiring.queues.retain(|queue| queue.arn != OTHER);
    let next = Host::of(&wiring, state.path(), false, 1_700_000_200_000).await;
    let client = client!(aws_sdk_sqs, next);
    next.clock.advance(Duration::from_secs(120));
    let failed = latest(&client).await;
    assert_eq!(failed.status(), Some("FAILED"));
    assert_eq!(failed.failure_reason(), Some("AWS.SimpleQueueService.NonExistentQueue"));
    let left = client.get_queue_attributes().queue_url(DEAD_URL);
    let left = left.attribute_names(QueueAttributeName::All).send().await.unwrap();
    assert_eq!(left.attributes().unwrap()[&QueueAttributeName::ApproximateNumberOfMessages], "2");
}
