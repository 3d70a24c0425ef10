//! One process of a function: started, attended, and buried.

use std::{future, io, process::Stdio, sync::Arc, time::Duration};

use tokio::{
    process::{Child, Command},
    sync::mpsc::UnboundedReceiver,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::{
    function::Spec,
    log::{Tail, copy},
    pool::{Ending, Order, Pool},
};

/// How long the output of a dead process is waited for: a child of its own may hold the pipe open for ever.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// A random id in the shape of a UUID.
pub(crate) fn random_id() -> String {
    uuid::Uuid::from_u128(rand::random()).to_string()
}

/// Starts the process and attends it to its end.
pub(crate) async fn run(pool: Pool, id: String, tail: Arc<Tail>, orders: UnboundedReceiver<Order>) {
    let ending = match start(pool.spec(), &pool.runtime().base_of(&id), &id) {
        Ok(child) => Ending::Exited(attend(child, &pool, &id, tail, orders).await),
        Err(error) => Ending::NotStarted(error),
    };
    pool.ended(&id, &ending);
}

fn start(spec: &Spec, runtime_api: &str, id: &str) -> io::Result<Child> {
    Command::new(&spec.program)
        .env_clear()
        .envs(&spec.environment)
        .env("AWS_LAMBDA_RUNTIME_API", runtime_api)
        .env("AWS_LAMBDA_LOG_STREAM_NAME", format!("local/[$LATEST]{id}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: Ctrl-C in the terminal is for the host, which lets running invocations finish.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn attend(
    mut child: Child,
    pool: &Pool,
    id: &str,
    tail: Arc<Tail>,
    mut orders: UnboundedReceiver<Order>,
) -> io::Result<std::process::ExitStatus> {
    let pid = child.id();
    if let Some(pid) = pid {
        pool.born(id, pid);
        pool.runtime().started(pid);
    }
    let mut output = JoinSet::new();
    if let Some(stdout) = child.stdout.take() {
        let (log, tail) = (Arc::clone(pool.log()), Arc::clone(&tail));
        output.spawn(async move { copy(stdout, &log, &tail).await });
    }
    if let Some(stderr) = child.stderr.take() {
        let log = Arc::clone(pool.log());
        output.spawn(async move { copy(stderr, &log, &tail).await });
    }
    let mut until = Some(Instant::now() + pool.spec().init_timeout);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            Some(order) = orders.recv() => match order {
                Order::Until(time) => until = time,
                Order::Kill => { let _ = child.start_kill(); }
            },
            () = at(until) => {
                until = None;
                if pool.overdue(id) {
                    let _ = child.start_kill();
                }
            }
        }
    };
    if let Some(pid) = pid {
        pool.runtime().ended(pid);
    }
    let _ = timeout(LAST_WORDS, async { while output.join_next().await.is_some() {} }).await;
    status
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => future::pending().await,
    }
}
