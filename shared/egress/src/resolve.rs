//! From a name to all of its addresses.

use std::{net::IpAddr, time::Duration};

use hickory_resolver::{TokioResolver, config::LookupIpStrategy, net::NetError};

/// How long an answer may be kept, whatever its TTL says: a name that moved is found again within a minute.
const MAX_TTL: Duration = Duration::from_secs(60);

/// Asks for the addresses of names. Nothing it says is believed: every address is checked before it is dialled.
pub trait Resolve: Send + Sync + 'static {
    /// Why a name has no address.
    type Error: std::error::Error + Send + Sync + 'static;

    /// All addresses of a name, IPv4 first.
    fn addresses(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Vec<IpAddr>, Self::Error>> + Send;
}

/// The resolver of the machine, as `/etc/resolv.conf` has it.
#[derive(Clone, Debug)]
pub struct SystemResolver(TokioResolver);

impl SystemResolver {
    /// Reads the machine's configuration.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn open() -> Result<Self, NetError> {
        let mut builder = TokioResolver::builder_tokio()?;
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = Duration::from_secs(2);
        options.attempts = 2;
        options.positive_max_ttl = Some(MAX_TTL);
        options.negative_max_ttl = Some(Duration::from_secs(5));
        builder.build().map(Self)
    }
}

impl Resolve for SystemResolver {
    type Error = NetError;

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NetError> {
        // The final dot: a name of the internet, never one in the machine's own search domains.
        let found = self.0.lookup_ip(format!("{}.", name.trim_end_matches('.'))).await?;
        Ok(found.iter().collect())
    }
}
