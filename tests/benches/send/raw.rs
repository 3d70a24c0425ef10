//! The loop that the deliverer is compared with: hyper and rustls, and nothing around them.

use std::{net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Posts so many requests over `width` connections, each request after the answer to the one before.
pub(crate) async fn posts(
    port: u16,
    tls: &Arc<ClientConfig>,
    width: usize,
    requests: usize,
    headers: &HeaderMap,
    body: &Bytes,
) {
    join_all((0..width).map(|n| {
        let share = requests / width + usize::from(n < requests % width);
        connection(port, tls, share, headers, body)
    }))
    .await;
}

#[expect(clippy::disallowed_methods, reason = "as every user of hyper drives its connection")]
async fn connection(
    port: u16,
    tls: &Arc<ClientConfig>,
    requests: usize,
    headers: &HeaderMap,
    body: &Bytes,
) {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driven = tokio::spawn(connection);
    for _ in 0..requests {
        let mut request = Request::post("/hook").body(Full::new(body.clone())).unwrap();
        *request.headers_mut() = headers.clone();
        let host = format!("127.0.0.1:{port}").try_into().unwrap();
        request.headers_mut().insert(header::HOST, host);
        let response = sender.send_request(request).await.unwrap();
        assert!(response.status().is_success());
        response.into_body().collect().await.unwrap();
    }
    drop(sender);
    driven.await.unwrap().unwrap();
}
