//! Clients of AWS, built by hand: the default way of building them parses the system's certificates and brings a second
//! TLS stack, which is most of a cold start.

use std::{error::Error, fmt, time::Duration};

use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
pub use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::{
    behavior_version::BehaviorVersion, http::SharedHttpClient, result::SdkError,
};
use aws_smithy_types::{
    error::metadata::ProvideErrorMetadata, retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_types::{SdkConfig, region::Region};
use domain::ports::StoreError;
use http::Uri;

use crate::env::Env;

/// The roots that all endpoints of AWS chain to, as Amazon Trust Services publishes them: parsing these five costs a
/// twentieth of parsing a system's bundle.
const AMAZON_ROOTS: &[u8] = include_bytes!("../roots/amazon.pem");

/// Idle connections are dropped after this: a sandbox thaws with connections that the other side has closed long ago.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// A service that the product calls, as its variable `AWS_ENDPOINT_URL_<SERVICE>` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Tables.
    DynamoDb,
    /// Queues.
    Sqs,
    /// Secrets of sources, and API tokens.
    SecretsManager,
    /// Sealing secrets of endpoints.
    Kms,
    /// Large bodies.
    S3,
    /// Buses.
    EventBridge,
}

impl Service {
    const ALL: [Self; 6] =
        [Self::DynamoDb, Self::Sqs, Self::SecretsManager, Self::Kms, Self::S3, Self::EventBridge];

    const fn variable(self) -> &'static str {
        match self {
            Self::DynamoDb => "AWS_ENDPOINT_URL_DYNAMODB",
            Self::Sqs => "AWS_ENDPOINT_URL_SQS",
            Self::SecretsManager => "AWS_ENDPOINT_URL_SECRETS_MANAGER",
            Self::Kms => "AWS_ENDPOINT_URL_KMS",
            Self::S3 => "AWS_ENDPOINT_URL_S3",
            Self::EventBridge => "AWS_ENDPOINT_URL_EVENTBRIDGE",
        }
    }
}

/// What Lambda (or the local host) sets for every function: region, credentials, other endpoints.
#[derive(Clone)]
pub struct Settings {
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
    endpoints: Vec<(Service, String)>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (region, endpoints) = (&self.region, &self.endpoints);
        f.debug_struct("Settings")
            .field("region", region)
            .field("endpoints", endpoints)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_ENDPOINT_URL_*`.
    pub fn read(env: &mut Env) -> Option<Self> {
        let region = env.text("AWS_REGION");
        let id = env.text("AWS_ACCESS_KEY_ID");
        let secret = env.text("AWS_SECRET_ACCESS_KEY");
        let token = env.optional_text("AWS_SESSION_TOKEN");
        // All of them before any `?`, so that all problems are seen.
        let endpoints: Option<Vec<Option<_>>> =
            Service::ALL.map(|service| endpoint(env, service)).into_iter().collect();
        // The environment's credentials outlive the sandbox, so they need no renewing.
        let credentials = Credentials::new(id?, secret?, token, None, "environment");
        let endpoints = endpoints?.into_iter().flatten().collect();
        Some(Self { region: region?, credentials, endpoints })
    }

    /// The address of a service that is not where AWS has it.
    pub fn endpoint(&self, service: Service) -> Option<&str> {
        self.endpoints.iter().find(|(of, _)| *of == service).map(|(_, url)| url.as_str())
    }
}

/// `Some(None)`: not set. `None`: wrong.
fn endpoint(env: &mut Env, service: Service) -> Option<Option<(Service, String)>> {
    let name = service.variable();
    if env.optional_text(name).is_none() {
        return Some(None);
    }
    let url = env.url(name)?;
    if is_private_enough(&url) {
        Some(Some((service, url)))
    } else {
        env.problem(
            name,
            "is plain http to another machine; it should be https, or a loopback address",
        )
    }
}

/// Requests carry signatures and personal data: in the clear they go to this machine only.
fn is_private_enough(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https")
            || matches!(uri.host(), Some("127.0.0.1" | "[::1]" | "localhost"))
    })
}

/// How long a call may take, and how often it is tried, so that it ends before its function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// For a connection to be made.
    pub connect: Duration,
    /// For one try.
    pub attempt: Duration,
    /// For all tries, with the waits between them.
    pub operation: Duration,
    /// How many tries.
    pub tries: u32,
}

impl Pace {
    /// For functions that nobody waits for. Ten seconds are a third of their time: what a call did not do by then, the
    /// next message will.
    pub const BACKGROUND: Self = Self {
        connect: Duration::from_secs(1),
        attempt: Duration::from_secs(3),
        operation: Duration::from_secs(10),
        tries: 4,
    };

    /// For a function whose whole work has this budget: one call gets most of it, so that the answer is still ours to
    /// give, and one stalled try leaves time for another.
    pub fn within(budget: Duration) -> Self {
        Self {
            connect: (budget / 4).min(Duration::from_secs(1)),
            attempt: (budget * 2 / 5).min(Duration::from_secs(2)),
            operation: (budget * 7 / 8).min(Duration::from_secs(5)),
            tries: 3,
        }
    }
}

/// Makes clients that share connections.
#[derive(Clone, Debug)]
pub struct Aws {
    base: SdkConfig,
    settings: Settings,
}

impl Aws {
    /// Clients for these settings, at this pace.
    pub fn new(settings: &Settings, pace: Pace) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(pace.connect)
            .operation_attempt_timeout(pace.attempt)
            .operation_timeout(pace.operation)
            .build();
        let base = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(settings.region.clone()))
            .credentials_provider(SharedCredentialsProvider::new(settings.credentials.clone()))
            .http_client(http_client())
            .timeout_config(timeouts)
            .retry_config(
                RetryConfig::standard()
                    .with_max_attempts(pace.tries)
                    .with_initial_backoff(Duration::from_millis(50))
                    .with_max_backoff(pace.attempt),
            )
            .build();
        Self { base, settings: settings.clone() }
    }

    /// The configuration of one service's client.
    pub fn config(&self, service: Service) -> SdkConfig {
        let mut builder = self.base.to_builder();
        builder.set_endpoint_url(self.settings.endpoint(service).map(str::to_owned));
        builder.build()
    }

    /// A client of SQS.
    #[cfg(feature = "queue")]
    pub fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&self.config(Service::Sqs))
    }

    /// A client of EventBridge.
    #[cfg(feature = "bus")]
    pub fn eventbridge(&self) -> aws_sdk_eventbridge::Client {
        aws_sdk_eventbridge::Client::new(&self.config(Service::EventBridge))
    }

    /// A client of Secrets Manager.
    #[cfg(feature = "secrets")]
    pub fn secrets_manager(&self) -> aws_sdk_secretsmanager::Client {
        aws_sdk_secretsmanager::Client::new(&self.config(Service::SecretsManager))
    }

    /// A client of KMS.
    #[cfg(feature = "keys")]
    pub fn kms(&self) -> aws_sdk_kms::Client {
        aws_sdk_kms::Client::new(&self.config(Service::Kms))
    }
}

fn http_client() -> SharedHttpClient {
    let roots = TrustStore::empty().with_pem_certificate(AMAZON_ROOTS);
    let builder = Builder::new()
        .pool_idle_timeout(POOL_IDLE)
        .tls_provider(Provider::Rustls(CryptoMode::Ring));
    match TlsContext::builder().with_trust_store(roots).build() {
        Ok(context) => builder.tls_context(context).build_https(),
        // Cannot happen: building a context checks nothing. Without roots every connection would be refused.
        Err(_) => builder.build_https(),
    }
}

/// Codes with which services say "too much at once". DynamoDB has its own list, in `dynamo`.
const THROTTLED: [&str; 9] = [
    "LimitExceededException",
    "OverLimit",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// Whether a service says "too much at once" with this code and this status.
pub fn is_throttled(code: Option<&str>, status: u16) -> bool {
    status == 429 || code.is_some_and(|code| THROTTLED.contains(&code))
}

/// What a failed call means, after its call site took out what is an outcome. Unknown errors are never an outcome.
pub fn failed<E>(error: SdkError<E, HttpResponse>) -> StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let kind = match &error {
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            StoreError::Unavailable
        }
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            match status {
                _ if is_throttled(service.err().code(), status) => StoreError::Throttled,
                500.. => StoreError::Unavailable,
                _ => StoreError::Refused,
            }
        }
        _ => StoreError::Refused,
    };
    kind(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAMBDA: [(&str, &str); 4] = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "canary-secret"),
        ("AWS_SESSION_TOKEN", "canary-token"),
    ];

    fn settings(more: &[(&'static str, &'static str)]) -> Result<Settings, Vec<String>> {
        Env::over(LAMBDA.iter().chain(more).copied())
            .parse(Settings::read)
            .map_err(|bad| bad.problems().to_vec())
    }

    #[test]
    fn endpoints_are_told_apart_by_service() {
        let settings = settings(&[
            ("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:8700"),
            ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8700/s3/"),
        ])
        .unwrap();
        let aws = Aws::new(&settings, Pace::BACKGROUND);
        assert_eq!(aws.config(Service::Sqs).endpoint_url(), Some("http://127.0.0.1:8700"));
        assert_eq!(aws.config(Service::DynamoDb).endpoint_url(), None);
        assert_eq!(settings.endpoint(Service::S3), Some("http://127.0.0.1:8700/s3"));
        assert_eq!(aws.config(Service::DynamoDb).region().unwrap().as_ref(), "eu-central-1");
    }

    #[test]
    fn plain_http_goes_to_loopback_only() {
        for good in
            ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://vpce.example"]
        {
            assert!(settings(&[("AWS_ENDPOINT_URL_KMS", good)]).is_ok(), "{good}");
        }
        for bad in
            ["http://10.0.0.1:1", "http://127.0.0.1.example", "http://localhost.example", "kms"]
        {
            let problems = settings(&[("AWS_ENDPOINT_URL_KMS", bad)]).unwrap_err();
            assert!(
                problems.len() == 1 && problems[0].starts_with("AWS_ENDPOINT_URL_KMS "),
                "{problems:?}"
            );
        }
    }

    /// SEC-secret-in-logs
    #[test]
    fn credentials_do_not_print() {
        let settings = settings(&[]).unwrap();
        let printed = format!("{settings:?} {:?}", Aws::new(&settings, Pace::BACKGROUND));
        assert!(!printed.contains("canary"), "{printed}");
    }

    /// DEP-sdk-timeouts
    #[test]
    fn one_call_ends_before_the_budget_and_leaves_time_for_a_second_try() {
        for millis in [40, 400, 4000, 60_000] {
            let budget = Duration::from_millis(millis);
            let pace = Pace::within(budget);
            assert!(pace.operation < budget, "{pace:?}");
            assert!(pace.attempt * 2 < pace.operation, "{pace:?}");
            assert!(pace.connect < pace.attempt, "{pace:?}");
        }
    }

    #[test]
    fn the_compiled_in_roots_can_be_read() {
        let text = std::str::from_utf8(AMAZON_ROOTS).unwrap();
        assert_eq!(text.matches("-----BEGIN CERTIFICATE-----").count(), 5);
    }
}
