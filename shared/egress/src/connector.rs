//! The only place that opens a connection to a host that a stranger has named.
//!
//! The guard sits here and not in the resolver, because a host that is an address never comes to a resolver.

use std::{
    collections::VecDeque,
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use domain::{address::AddressPolicy, delivery::Cause};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

use crate::{resolve::Resolve, tls};

/// Most addresses of one host that are dialled, one after the other.
const MAX_DIALLED: usize = 4;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection ({cause:?})")]
pub struct ConnectError {
    /// Why, in one word.
    pub cause: Cause,
    /// Why, for an operator.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

fn no(cause: Cause) -> ConnectError {
    ConnectError { cause, source: None }
}

fn because(cause: Cause, source: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
    ConnectError { cause, source: Some(source.into()) }
}

/// What a process or its machine can have too little of: open files, memory, buffers (Linux's ENFILE, EMFILE, ENOMEM,
/// ENOBUFS). A sandbox of Lambda has 1,024 files.
const EXHAUSTED: [i32; 4] = [23, 24, 12, 105];

/// Names a dial that failed. What there is too little of here is not the other side's fault.
fn of_dial(error: &io::Error) -> Cause {
    match error.raw_os_error() {
        Some(code) if EXHAUSTED.contains(&code) => Cause::Internal,
        _ if error.kind() == io::ErrorKind::TimedOut => Cause::ConnectTimeout,
        _ => Cause::Refused,
    }
}

/// Most addresses that a log of dialled ones keeps. A client may live as long as its process.
const MAX_LOGGED: usize = 32;

/// Addresses that were dialled last, in order, for tests and for operators. The oldest go when there are more than
/// `MAX_LOGGED`; all are counted.
#[derive(Clone, Debug, Default)]
pub struct Dialled(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    last: VecDeque<SocketAddr>,
    count: u64,
}

impl Dialled {
    /// A copy of the list.
    pub fn list(&self) -> Vec<SocketAddr> {
        self.log().last.iter().copied().collect()
    }

    /// How many were dialled, those included that are not in the list any more.
    pub fn count(&self) -> u64 {
        self.log().count
    }

    fn note(&self, address: SocketAddr) {
        let mut log = self.log();
        if log.last.len() == MAX_LOGGED {
            log.last.pop_front();
        }
        log.last.push_back(address);
        log.count = log.count.saturating_add(1);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves, checks, dials what it checked, and puts TLS around it.
pub struct Connector<R> {
    /// Asks for addresses.
    pub resolver: Arc<R>,
    /// Whom we believe.
    pub tls: Arc<ClientConfig>,
    /// What may be dialled.
    pub policy: AddressPolicy,
    /// Longest time for all of it.
    pub within: Duration,
    /// What was dialled.
    pub dialled: Dialled,
}

impl<R> Clone for Connector<R> {
    fn clone(&self) -> Self {
        Self {
            resolver: Arc::clone(&self.resolver),
            tls: Arc::clone(&self.tls),
            policy: self.policy,
            within: self.within,
            dialled: self.dialled.clone(),
        }
    }
}

impl<R> fmt::Debug for Connector<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<R: Resolve> Connector<R> {
    async fn connect(self, uri: Uri) -> Result<Stream, ConnectError> {
        let by = Instant::now() + self.within;
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(443);
        if uri.scheme_str() != Some("https") || host.is_empty() || !self.policy.allows_port(port) {
            return Err(no(Cause::BlockedAddress));
        }
        // An IPv6 address stands in brackets, and with them it would pass for a name.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let addresses = self.addresses(host, by).await?;
        let tcp = self.dial(&addresses, port, by).await?;
        self.encrypt(host, tcp, by).await
    }

    /// All addresses of a host, each of them checked. One that is not allowed spoils them all: a name with a public
    /// and a private address is how the check is meant to be raced.
    async fn addresses(&self, host: &str, by: Instant) -> Result<Vec<IpAddr>, ConnectError> {
        let found = match host.parse::<IpAddr>() {
            Ok(literal) => vec![literal],
            Err(_) => match timeout_at(by, self.resolver.addresses(host)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return Err(because(Cause::Dns, error)),
                Err(elapsed) => return Err(because(Cause::Dns, elapsed)),
            },
        };
        let checked = found.into_iter().map(|address| self.policy.check(address));
        let mut checked = checked
            .collect::<Result<Vec<_>, _>>()
            .map_err(|blocked| because(Cause::BlockedAddress, blocked))?;
        // Most of Lambda has no way out over IPv6.
        checked.sort_by_key(IpAddr::is_ipv6);
        checked.truncate(MAX_DIALLED);
        if checked.is_empty() { Err(no(Cause::Dns)) } else { Ok(checked) }
    }

    /// The first address that takes a connection. Each has its part of the time that is left.
    async fn dial(
        &self,
        addresses: &[IpAddr],
        port: u16,
        by: Instant,
    ) -> Result<TcpStream, ConnectError> {
        let mut last = no(Cause::ConnectTimeout);
        for (tried, address) in addresses.iter().enumerate() {
            let rest = u32::try_from(addresses.len() - tried).unwrap_or(1).max(1);
            let now = Instant::now();
            let part = now + by.saturating_duration_since(now) / rest;
            let address = SocketAddr::new(*address, port);
            self.dialled.note(address);
            last = match timeout_at(part, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without it the last part of a body can wait for an acknowledgement.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => because(of_dial(&error), error),
                Err(elapsed) => because(Cause::ConnectTimeout, elapsed),
            };
        }
        Err(last)
    }

    async fn encrypt(
        &self,
        host: &str,
        tcp: TcpStream,
        by: Instant,
    ) -> Result<Stream, ConnectError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| because(Cause::BlockedAddress, error))?;
        let handshake = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        match timeout_at(by, handshake).await {
            Ok(Ok(stream)) => Ok(Stream(Box::new(TokioIo::new(stream)))),
            Ok(Err(error)) => Err(because(tls::cause_of(&error), error)),
            // Connected, and then nothing.
            Err(elapsed) => Err(because(Cause::Timeout, elapsed)),
        }
    }
}

impl<R: Resolve> Service<Uri> for Connector<R> {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// A connection: TLS over TCP to an address that was checked.
///
/// Boxed: a client moves it through several futures, each of which would have room for all of it, for as long as a thousand
/// of them wait.
#[derive(Debug)]
pub struct Stream(Box<TokioIo<TlsStream<TcpStream>>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(context, buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint is not blamed, and in the end disabled, because we had no file left to reach it with.
    #[test]
    fn what_we_have_too_little_of_is_not_the_endpoints_fault() {
        for (code, expected) in [
            (24, Cause::Internal),  // too many open files
            (105, Cause::Internal), // no buffer space
            (111, Cause::Refused),
            (113, Cause::Refused), // no route
            (110, Cause::ConnectTimeout),
        ] {
            assert_eq!(of_dial(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }

    #[test]
    fn the_log_of_what_was_dialled_counts_for_ever_and_keeps_the_last() {
        let dialled = Dialled::default();
        for port in 1..=1000 {
            dialled.note(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        let list = dialled.list();
        assert_eq!((list.len(), dialled.count()), (MAX_LOGGED, 1000));
        assert_eq!(list.last().map(SocketAddr::port), Some(1000));
        assert_eq!(list.first().map(SocketAddr::port), Some(969));
        assert!(dialled.log().last.capacity() <= 2 * MAX_LOGGED);
    }
}
