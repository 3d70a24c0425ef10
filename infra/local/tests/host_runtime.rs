//! The Runtime API and the pool, with real processes.
#![expect(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "test code")]

use std::{fs, time::Duration};

use local::compute::function::{ANSWER_LIMIT, Cause, Failure, Outcome};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use host_support::{Running, Wanted, eventually, running};

mod host_support;

async fn invoke(running: &Running, event: Value) -> Outcome {
    let invoking = running.pool.invoke(event.to_string().into());
    timeout(Duration::from_secs(20), invoking).await.expect("the call hangs")
}

async fn answer(running: &Running, event: Value) -> Value {
    match invoke(running, event).await {
        Outcome::Answer(bytes) => serde_json::from_slice(&bytes).unwrap(),
        Outcome::Failed(failure) => panic!("{failure}"),
    }
}

async fn failure(running: &Running, event: Value) -> Failure {
    match invoke(running, event).await {
        Outcome::Failed(failure) => failure,
        Outcome::Answer(bytes) => panic!("answered {bytes:?}"),
    }
}

async fn pid(running: &Running) -> Value {
    answer(running, json!({"do": "pid"})).await
}

#[tokio::test]
async fn an_event_comes_back_from_one_warm_process() {
    let running = running(Wanted::default()).await;
    assert_eq!(answer(&running, json!({"a": [1, "é"]})).await, json!({"event": {"a": [1, "é"]}}));
    let first = pid(&running).await;
    assert_eq!(pid(&running).await, first);
    assert_eq!(running.pool.processes().len(), 1);
}

#[tokio::test]
async fn an_invocation_has_the_headers_of_lambda() {
    let running = running(Wanted::default()).await;
    let headers = answer(&running, json!({"do": "headers"})).await;
    assert_eq!(
        headers["lambda-runtime-invoked-function-arn"],
        "arn:aws:lambda:us-east-1:000000000000:function:local-echo"
    );
    assert_eq!(headers["lambda-runtime-aws-request-id"].as_str().unwrap().len(), 36);
    assert!(headers["lambda-runtime-trace-id"].as_str().unwrap().starts_with("Root=1-"));
    assert_eq!(headers["lambda-runtime-deadline-ms"].as_str().unwrap().len(), 13);
}

#[tokio::test]
async fn a_process_sees_its_environment_and_nothing_of_the_hosts() {
    let running =
        running(Wanted { environment: vec![("INBOX_TABLE", "inbox".into())], ..Wanted::default() })
            .await;
    let environment = answer(&running, json!({"do": "environment"})).await;
    let mut names: Vec<_> = environment.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["AWS_LAMBDA_LOG_STREAM_NAME", "AWS_LAMBDA_RUNTIME_API", "INBOX_TABLE"]);
}

#[tokio::test]
async fn a_reported_error_is_the_functions_own_and_its_process_lives_on() {
    let running = running(Wanted::default()).await;
    let before = pid(&running).await;
    let failure = failure(&running, json!({"do": "error", "message": "no such source"})).await;
    assert_eq!(
        failure,
        Failure { cause: Cause::Reported, kind: "Told".into(), message: "no such source".into() }
    );
    assert_eq!(pid(&running).await, before);
}

#[tokio::test]
async fn a_process_that_dies_takes_only_its_own_invocation_with_it() {
    let running = running(Wanted::default()).await;
    let (died, slept) = tokio::join!(
        failure(&running, json!({"do": "exit"})),
        answer(&running, json!({"do": "sleep", "ms": 300}))
    );
    assert_eq!((died.cause, died.kind.as_str()), (Cause::Died, "Runtime.ExitError"));
    assert!(
        died.message.contains("exit status: 7") && died.message.contains("out of memory, nearly"),
        "{}",
        died.message
    );
    assert_eq!(slept["event"]["do"], "sleep");
    answer(&running, json!({})).await;
}

#[tokio::test]
async fn an_invocation_that_takes_too_long_is_killed() {
    let running =
        running(Wanted { timeout: Duration::from_millis(300), ..Wanted::default() }).await;
    let before = pid(&running).await;
    let begun = Instant::now();
    let failure = failure(&running, json!({"do": "sleep", "ms": 60_000})).await;
    assert_eq!(failure.cause, Cause::TimedOut);
    assert!(failure.message.ends_with("Task timed out after 0.30 seconds"), "{}", failure.message);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_ne!(pid(&running).await, before);
}

#[tokio::test]
async fn a_function_that_cannot_start_says_why_and_is_not_tried_in_a_hot_loop() {
    let running =
        running(Wanted { environment: vec![("LOCAL_INIT", "exit".into())], ..Wanted::default() })
            .await;
    let first = failure(&running, json!({})).await;
    assert_eq!(first.cause, Cause::Init);
    for part in ["EchoFunction", "exit status: 3", "INBOX_TABLE is not set", "EchoFunction.log"] {
        assert!(first.message.contains(part), "{part}: {}", first.message);
    }
    let begun = Instant::now();
    for _ in 0..1000 {
        assert_eq!(failure(&running, json!({})).await.cause, Cause::Init);
    }
    let log = fs::read_to_string(running.folder.path().join("EchoFunction.log")).unwrap();
    let starts = log.lines().filter(|line| line.contains("INBOX_TABLE")).count();
    assert!(starts < 10, "{starts} starts in {:?}", begun.elapsed());
}

#[tokio::test]
async fn what_a_function_says_of_its_failed_start_is_shown() {
    let running =
        running(Wanted { environment: vec![("LOCAL_INIT", "error".into())], ..Wanted::default() })
            .await;
    let failure = failure(&running, json!({})).await;
    assert_eq!((failure.cause, failure.kind.as_str()), (Cause::Init, "Config"));
    assert!(failure.message.contains("two settings are missing"), "{}", failure.message);
}

#[tokio::test]
async fn a_function_that_never_asks_for_an_event_does_not_hang_its_callers() {
    let wanted = Wanted {
        init_timeout: Duration::from_millis(300),
        environment: vec![("LOCAL_INIT", "hang".into())],
        ..Wanted::default()
    };
    let running = running(wanted).await;
    let (one, two) = tokio::join!(failure(&running, json!({})), failure(&running, json!({})));
    assert_eq!(
        (one.kind.as_str(), two.kind.as_str()),
        ("Sandbox.InitTimedout", "Sandbox.InitTimedout")
    );
    eventually("its processes are gone", async || {
        running.pool.processes().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn there_are_as_many_processes_as_the_limit_allows_and_no_more() {
    let running = running(Wanted { limit: 2, ..Wanted::default() }).await;
    let mut calls = JoinSet::new();
    for _ in 0..6 {
        let pool = running.pool.clone();
        calls.spawn(async move {
            pool.invoke(json!({"do": "sleep", "ms": 150}).to_string().into()).await
        });
    }
    eventually("two run and four wait", async || {
        let load = running.pool.load();
        (load.running == 2 && load.waiting == 4).then_some(())
    })
    .await;
    while let Some(outcome) = calls.join_next().await {
        assert!(matches!(outcome.unwrap(), Outcome::Answer(_)));
        assert!(running.pool.processes().len() <= 2);
    }
    assert_eq!(running.pool.processes().len(), 2);
    eventually("idle processes retire", async || {
        running.pool.retire(Duration::ZERO);
        running.pool.processes().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn killed_processes_fail_what_they_do_and_the_next_event_gets_a_fresh_one() {
    let running = running(Wanted::default()).await;
    let killing = async {
        eventually("it runs", async || (running.pool.load().running == 1).then_some(())).await;
        assert_eq!(running.pool.kill(), 1);
    };
    let (failure, ()) =
        tokio::join!(failure(&running, json!({"do": "sleep", "ms": 60_000})), killing);
    assert_eq!(failure.cause, Cause::Died);
    assert!(failure.message.contains("signal: 9"), "{}", failure.message);
    answer(&running, json!({})).await;
}

#[tokio::test]
async fn events_and_answers_end_at_six_megabytes() {
    let running = running(Wanted::default()).await;
    let failure_out = failure(&running, json!({"do": "fill"})).await;
    assert_eq!(failure_out.kind, "Function.ResponseSizeTooLarge", "{}", failure_out.message);
    assert!(failure_out.message.contains(&ANSWER_LIMIT.to_string()));
    let failure_in = failure(&running, json!({"a": "x".repeat(6_291_456)})).await;
    assert_eq!(failure_in.kind, "RequestTooLargeException");
}

#[tokio::test]
async fn stopping_lets_running_invocations_finish_and_ends_every_process() {
    let running = running(Wanted { limit: 1, ..Wanted::default() }).await;
    let stopping = async {
        eventually("one runs and one waits", async || {
            let load = running.pool.load();
            (load.running == 1 && load.waiting == 1).then_some(())
        })
        .await;
        running.pool.stop(Duration::from_secs(5)).await;
    };
    let (finished, refused, ()) = tokio::join!(
        answer(&running, json!({"do": "sleep", "ms": 200})),
        async {
            eventually("the first runs", async || (running.pool.load().running == 1).then_some(()))
                .await;
            failure(&running, json!({})).await
        },
        stopping
    );
    assert_eq!(finished["event"]["do"], "sleep");
    assert_eq!(refused.cause, Cause::Stopping);
    assert!(running.pool.processes().is_empty());
    assert_eq!(failure(&running, json!({})).await.cause, Cause::Stopping);
}
