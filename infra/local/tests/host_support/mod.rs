//! What the tests of the host share.

#![expect(dead_code, unreachable_pub, reason = "each test binary uses a part of this")]

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use local::compute::{function::Spec, pool::Pool, runtime_api::Runtime};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

/// The folder of the programs that cargo built.
pub fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_postern-local")).parent().unwrap().to_owned()
}

/// The function that does what it is told.
pub fn echo_function() -> PathBuf {
    let path = built().join("examples/echo_function");
    assert!(
        path.exists(),
        "{} is missing; build it with `cargo build -p local --examples`",
        path.display()
    );
    path
}

/// A pool of that function with a Runtime API of its own. It lives as long as the set.
pub struct Running {
    pub pool: Pool,
    pub folder: tempfile::TempDir,
    _server: JoinSet<std::io::Result<()>>,
}

pub struct Wanted {
    pub timeout: Duration,
    pub init_timeout: Duration,
    pub limit: usize,
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Wanted {
    fn default() -> Self {
        let long = Duration::from_secs(30);
        Self { timeout: long, init_timeout: long, limit: 2, environment: vec![] }
    }
}

pub async fn running(wanted: Wanted) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let runtime = Runtime::new(listener.local_addr().unwrap(), None);
    let environment: BTreeMap<_, _> =
        wanted.environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let spec = Spec {
        logical_id: "EchoFunction".into(),
        name: "local-echo".into(),
        arn: "arn:aws:lambda:us-east-1:000000000000:function:local-echo".into(),
        program: echo_function(),
        timeout: wanted.timeout,
        init_timeout: wanted.init_timeout,
        memory_mb: 128,
        limit: wanted.limit,
        environment,
        log: folder.path().join("EchoFunction.log"),
    };
    let pool = Pool::new(spec, runtime.clone()).unwrap();
    let mut server = JoinSet::new();
    server.spawn(runtime.serve(listener));
    Running { pool, folder, _server: server }
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }
}

/// One HTTP request, on a connection of its own.
pub async fn call(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut request = http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let response = client.request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let mut joined: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &parts.headers {
        let value = value.to_str().unwrap();
        joined
            .entry(name.to_string())
            .and_modify(|before| *before = format!("{before}|{value}"))
            .or_insert_with(|| value.to_owned());
    }
    Answer {
        status: parts.status.as_u16(),
        headers: joined,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// Waits until something holds, for at most ten seconds.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let looking = async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looking)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}
