//! Large bodies, in a bucket or a folder.

use std::{future::Future, path::Path as FilePath, pin::Pin, sync::Arc, time::Duration};

use domain::ports::{Bodies, StoreError, Stored};
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt as _, RetryConfig,
    aws::AmazonS3Builder,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
    local::LocalFileSystem,
    path::Path,
};

use crate::aws::{Pace, Service, Settings};

/// Idle connections are dropped after this; see the same number in [`crate::aws`].
const POOL_IDLE: Duration = Duration::from_secs(30);

/// A place for large bodies.
#[derive(Clone, Debug)]
pub struct BodyStore {
    store: Arc<dyn ObjectStore>,
    /// For one call with all its tries.
    patience: Duration,
}

/// Why a place for bodies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadBodiesUrl {
    /// Neither a bucket nor a folder.
    #[error("BODIES_URL should be s3://<bucket> or file:///<folder>")]
    Form,
    /// A folder that is not there and cannot be made.
    #[error("the folder of BODIES_URL cannot be made")]
    Folder(#[source] std::io::Error),
    /// A bucket or a folder that the library does not take.
    #[error("the place of BODIES_URL cannot be opened")]
    Place(#[source] Error),
}

impl BodyStore {
    /// Opens `s3://<bucket>` or `file:///<folder>`.
    ///
    /// # Errors
    /// When the address is of another form, or the folder cannot be made. A bucket is not asked for until it is used.
    pub fn open(url: &str, settings: &Settings, pace: Pace) -> Result<Self, BadBodiesUrl> {
        let store: Arc<dyn ObjectStore> = match url.split_once("://") {
            Some(("s3", bucket)) if is_bucket(bucket) => {
                Arc::new(s3(bucket, settings, pace).map_err(BadBodiesUrl::Place)?)
            }
            Some(("file", folder)) if FilePath::new(folder).is_absolute() => {
                std::fs::create_dir_all(folder).map_err(BadBodiesUrl::Folder)?;
                Arc::new(LocalFileSystem::new_with_prefix(folder).map_err(BadBodiesUrl::Place)?)
            }
            _ => return Err(BadBodiesUrl::Form),
        };
        Ok(Self { store, patience: pace.operation })
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Stored<Result<T, Error>> {
        tokio::time::timeout(self.patience, call)
            .await
            .map_err(|late| StoreError::Unavailable(Box::new(late)))
    }
}

fn is_bucket(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

fn s3(bucket: &str, settings: &Settings, pace: Pace) -> Result<object_store::aws::AmazonS3, Error> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: pace.attempt,
        base: 2.0,
    };
    let retry = RetryConfig {
        backoff,
        max_retries: usize::try_from(pace.tries.saturating_sub(1)).unwrap_or_default(),
        retry_timeout: pace.operation,
    };
    let endpoint = settings.endpoint(Service::S3);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(&settings.region)
        .with_access_key_id(settings.credentials.access_key_id())
        .with_secret_access_key(settings.credentials.secret_access_key())
        .with_http_connector(Connector { pace })
        .with_retry(retry)
        // A loopback endpoint has no name for each bucket.
        .with_virtual_hosted_style_request(endpoint.is_none());
    if let Some(token) = settings.credentials.session_token() {
        builder = builder.with_token(token);
    }
    if let Some(url) = endpoint {
        // `Settings` takes plain http for loopback only.
        builder = builder
            .with_endpoint(url)
            .with_client_options(ClientOptions::new().with_allow_http(true));
    }
    builder.build()
}

impl Bodies for BodyStore {
    async fn put(&self, name: &str, bytes: Vec<u8>) -> Stored<()> {
        let path = Path::from(name);
        self.in_time(self.store.put(&path, bytes.into())).await?.map(drop).map_err(failed)
    }

    async fn get(&self, name: &str, limit: usize) -> Stored<Option<Vec<u8>>> {
        let path = Path::from(name);
        let read = async {
            let mut chunks = self.store.get(&path).await?.into_stream();
            let mut bytes = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk?;
                if bytes.len() + chunk.len() > limit {
                    return Ok(None);
                }
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(bytes))
        };
        match self.in_time(read).await? {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) => {
                Err(StoreError::Unreadable(format!("an object is larger than {limit} bytes")))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(error: Error) -> StoreError {
    match &error {
        Error::Generic { .. } | Error::JoinError { .. } => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Refused(Box::new(error)),
    }
}

/// Speaks HTTP for `object_store`, whose own client would bring a second TLS stack.
#[derive(Debug)]
struct Connector {
    pace: Pace,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(self.pace.connect));
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .build(tls);
        Ok(HttpClient::new(Hyper { client, patience: self.pace.attempt }))
    }
}

#[derive(Debug)]
struct Hyper {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    /// For one try, until its head has come.
    patience: Duration,
}

impl HttpService for Hyper {
    // What `async_trait` would write.
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = tokio::time::timeout(self.patience, self.client.request(request)).await;
            let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
            let (head, body) =
                answer.map_err(|error| HttpError::new(kind(&error), error))?.into_parts();
            let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
            Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
        })
    }
}

/// Puts and gets may be repeated, so that anything but nonsense may be tried again.
fn kind(error: &hyper_util::client::legacy::Error) -> HttpErrorKind {
    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    fn settings() -> Settings {
        let variables = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
        ];
        Env::over(variables).parse(Settings::read).unwrap()
    }

    fn open(url: &str) -> Result<BodyStore, BadBodiesUrl> {
        BodyStore::open(url, &settings(), Pace::BACKGROUND)
    }

    #[test]
    fn only_buckets_and_folders_are_opened() {
        for bad in [
            "",
            "bucket",
            "s3://",
            "s3://a/b",
            "s3://A",
            "file://relative",
            "file:///",
            "https://h/x",
            "s3:/a",
        ] {
            if bad != "file:///" {
                assert!(open(bad).is_err(), "{bad}");
            }
        }
        assert!(open("s3://bodies-1").is_ok());
    }

    #[tokio::test]
    async fn a_folder_keeps_bodies_and_limits_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("file://{}/bodies", folder.path().display())).unwrap();
        assert_eq!(store.get("in/s/abc", 10).await.unwrap(), None);
        store.put("in/s/abc", vec![7; 10]).await.unwrap();
        store.put("in/s/abc", vec![7; 10]).await.unwrap();
        assert_eq!(store.get("in/s/abc", 10).await.unwrap(), Some(vec![7; 10]));
        assert!(matches!(store.get("in/s/abc", 9).await, Err(StoreError::Unreadable(_))));
    }
}
