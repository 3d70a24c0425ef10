//! A deployment that writes down what it is asked.

use std::{
    convert::Infallible,
    fs,
    path::Path,
    sync::{Arc, Mutex, mpsc},
};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::{self, Ended, command};

/// A request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) call: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// A deployment that gives one answer to everything, and the state folder of the local host that it pretends to be.
pub(crate) struct Fake {
    pub(crate) url: String,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    pub(crate) folder: TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Fake {
    pub(crate) fn answering(status: u16, body: &Value) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (listening, address) = mpsc::channel();
        let (body, heard) = (body.to_string(), Arc::clone(&asked));
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listening.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(|request| answer(request, &heard, status, &body));
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        });
        let url = format!("http://{}", address.recv().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let apis = json!({"AdminApi": url, "IngressApi": url});
        let ready =
            json!({"control": format!("{url}/_local"), "apis": apis, "token": "CANARY-TOKEN"});
        fs::write(folder.path().join("ready.json"), ready.to_string()).unwrap();
        Self { url, asked, folder, _runtime: runtime }
    }

    /// Runs a command on the local host.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> Ended {
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_postern")));
        command.args(args).arg("--state").arg(self.folder.path());
        let ended = support::run(command, input);
        // SEC-secret-in-output
        let said = format!("{}{}", ended.out, ended.err);
        assert!(!said.contains("CANARY"), "{said}");
        ended
    }

    /// The only request.
    pub(crate) fn asked(&self) -> Asked {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let [only] = asked.as_slice() else { panic!("{} requests", asked.len()) };
        only.clone()
    }

    /// What it says on the error stream of a command that changes something.
    pub(crate) fn named(&self) -> String {
        format!("on the local host at {}\n", self.url)
    }
}

async fn answer(
    request: Request<Incoming>,
    asked: &Mutex<Vec<Asked>>,
    status: u16,
    body: &str,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let (head, sent) = request.into_parts();
    let sent = sent.collect().await.unwrap().to_bytes();
    let call = format!("{} {}", head.method, head.uri);
    let body_text = String::from_utf8(sent.to_vec()).unwrap();
    asked.lock().unwrap().push(Asked { call, headers: head.headers, body: body_text });
    let mut response = Response::new(Full::new(bytes::Bytes::from(body.to_owned())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    Ok(response)
}
