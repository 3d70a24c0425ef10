//! Which deployment a command is for, and how it is proved who asks.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
};

use aws_credential_types::Credentials;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use signing::Secret;
use url::{Host, Url};

use crate::{
    client::{Client, Proof},
    complaint::Complaint,
};

/// The local host of this project.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Local {
    /// The state folder of the local host; default: .postern beside template.yaml
    #[arg(long, global = true, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
}

/// Which deployment.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which deployment")]
pub struct Deployment {
    /// The URL of its api, which is the stack's output `AdminUrl`; default: the local host of this project
    #[arg(long, global = true, env = "POSTERN_API", value_name = "URL", hide_env_values = true)]
    pub api: Option<String>,

    /// The token of a local host that runs elsewhere: the content of `token` in its state folder
    #[arg(
        long,
        global = true,
        env = "POSTERN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        value_parser = secret
    )]
    pub token: Option<Secret>,

    /// The AWS region, for an api under a domain of your own; else the URL says it
    #[arg(long, global = true, env = "AWS_REGION", value_name = "REGION", hide_env_values = true)]
    pub region: Option<String>,

    #[command(flatten)]
    local: Local,

    #[arg(long, hide = true, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    access_key: Option<String>,

    #[arg(
        long,
        hide = true,
        env = "AWS_SECRET_ACCESS_KEY",
        hide_env_values = true,
        value_parser = secret
    )]
    secret_key: Option<Secret>,

    #[arg(
        long,
        hide = true,
        env = "AWS_SESSION_TOKEN",
        hide_env_values = true,
        value_parser = secret
    )]
    session_token: Option<Secret>,
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser that can fail")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// What the local host says when everything answers; kept in the state folder for other commands.
#[derive(Clone, Deserialize, Serialize)]
pub struct Ready {
    /// The control interface.
    pub control: String,
    /// HTTP APIs by logical id.
    pub apis: std::collections::BTreeMap<String, String>,
    /// Proves who calls.
    pub token: String,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("apis", &self.apis).finish_non_exhaustive()
    }
}

impl Ready {
    /// The base URL of one of the HTTP APIs.
    pub fn api(&self, logical_id: &str) -> Result<&str, Complaint> {
        self.apis.get(logical_id).map(String::as_str).ok_or_else(|| {
            Complaint::new(
                format!("the local host runs no {logical_id}"),
                "the template does not describe it",
                "use the template of this version of Postern",
            )
        })
    }
}

/// A deployment that was found.
#[derive(Clone, Debug)]
pub struct Target {
    /// Asks its api.
    pub client: Client,
    /// Where it is, for people.
    pub name: String,
}

/// Where the ready line of the local host is kept.
pub fn ready_file(state: &Path) -> PathBuf {
    state.join("ready.json")
}

/// The folder with `template.yaml`, from here upwards.
pub fn project_root() -> Result<PathBuf, Complaint> {
    let here = env::current_dir().map_err(|error| {
        Complaint::new("there is no current folder", error.to_string(), "change into the project")
    })?;
    let found = here.ancestors().find(|folder| folder.join("template.yaml").is_file());
    found.map(Path::to_owned).ok_or_else(|| {
        Complaint::new(
            "this is not a folder of Postern",
            format!("there is no template.yaml in {} or above it", here.display()),
            "change into the project's folder, and run `cargo dev` there",
        )
    })
}

impl Deployment {
    /// The options that name this deployment again, in a command for people to copy. Never what proves who asks.
    pub fn flags(&self) -> Vec<String> {
        let state = self.local.state.as_ref().map(|folder| folder.display().to_string());
        let given = [("--api", self.api.clone()), ("--state", state)];
        let given = given.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// Where owners of endpoints poll, on this machine.
    pub fn subscriber(&self) -> Result<String, Complaint> {
        if self.api.is_some() {
            let next = "give --subscriber (or POSTERN_SUBSCRIBER) the stack's output SubscriberUrl";
            let why = "the api of a deployment does not say where endpoints are polled";
            return Err(Complaint::new("it is not clear where to poll", why, next));
        }
        Ok(self.local.ready()?.api("SubscriberApi")?.to_owned())
    }

    /// The deployment that is meant.
    pub fn target(&self, now: Timestamp) -> Result<Target, Complaint> {
        let Some(text) = &self.api else { return self.local.target() };
        let base = text.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let host = check(text, &base)?;
        if let Some(token) = &self.token {
            let client = Client::new(base.clone(), Proof::Token(token.expose().to_owned()))?;
            return Ok(Target { client, name: format!("the local host at {base}") });
        }
        let (Some(key), Some(secret)) = (&self.access_key, &self.secret_key) else {
            return Err(Complaint::new(
                format!("{base} asks who calls"),
                "there is neither a token nor an AWS key in the environment",
                "export AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN \
                 (`aws configure export-credentials --format env`), or give --token",
            ));
        };
        let region = region(&host, self.region.as_deref())?;
        let session = self.session_token.as_ref().map(|token| token.expose().to_owned());
        let credentials = Credentials::new(key, secret.expose(), session, None, "environment");
        let name = format!("AWS at {base} (region {region}, access key {key})");
        let client = Client::new(base, Proof::Iam { credentials, region, now })?;
        Ok(Target { client, name })
    }
}

impl Local {
    fn target(&self) -> Result<Target, Complaint> {
        let ready = self.ready()?;
        let base = ready.api("AdminApi")?;
        let client = Client::new(base, Proof::Token(ready.token.clone()))?;
        Ok(Target { client, name: format!("the local host at {base}") })
    }

    /// The local host's state folder.
    pub fn state_folder(&self) -> Result<PathBuf, Complaint> {
        match &self.state {
            Some(folder) => std::path::absolute(folder).map_err(|error| {
                Complaint::new(
                    "there is no current folder",
                    error.to_string(),
                    "change into the project",
                )
            }),
            None => Ok(project_root()?.join(".postern")),
        }
    }

    /// The local host, as it said when it was ready.
    pub fn ready(&self) -> Result<Ready, Complaint> {
        let missing = |why: String| {
            Complaint::new(
                "it is not clear which deployment is meant",
                why,
                "start `cargo dev` in another terminal, or give --api with the stack's AdminUrl",
            )
        };
        let folder = self.state_folder().map_err(|complaint| missing(complaint.why))?;
        let file = ready_file(&folder);
        let text = fs::read_to_string(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                missing(format!("no local host runs on {}", folder.display()))
            }
            _ => missing(format!("{}: {error}", file.display())),
        })?;
        serde_json::from_str(&text)
            .map_err(|_| missing(format!("{} is not what a local host writes", file.display())))
    }
}

/// The host of an api's URL, which must be https unless it is on this machine: what proves who calls is in a header.
fn check(text: &str, base: &str) -> Result<String, Complaint> {
    let wrong = |why: &str| {
        let next = "give --api (or POSTERN_API) the stack's output AdminUrl, such as \
                    https://abc.execute-api.eu-central-1.amazonaws.com";
        Complaint::new(format!("{text} is not the URL of an api"), why, next)
    };
    let url = Url::parse(base).map_err(|error| wrong(&error.to_string()))?;
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => return Err(wrong("it has no host")),
    };
    match url.scheme() {
        "https" => {}
        "http" if is_here => {}
        _ => return Err(wrong("it does not begin with https://, and is not on this machine")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it contains a user name or a password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("something stands behind its path"));
    }
    Ok(url.host_str().unwrap_or_default().to_owned())
}

/// The region to sign for. The URL of API Gateway says it; if the environment says another, one of them is not what
/// was meant.
fn region(host: &str, given: Option<&str>) -> Result<String, Complaint> {
    let parts: Vec<_> = host.split('.').collect();
    let of_url = match parts.as_slice() {
        [_, "execute-api", region, "amazonaws", ..] => Some(*region),
        _ => None,
    };
    match (of_url, given) {
        (Some(of_url), Some(given)) if of_url != given => Err(Complaint::new(
            "it is not clear which deployment is meant",
            format!("the URL is in {of_url}, and AWS_REGION or --region says {given}"),
            format!("give --region {of_url} if the URL is right"),
        )),
        (Some(region), _) | (None, Some(region)) => Ok(region.to_owned()),
        (None, None) => Err(Complaint::new(
            "calls of an api on AWS are signed for a region",
            format!("{host} does not say which, and none is given"),
            "give --region or export AWS_REGION",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_aws(api: &str, region: Option<&str>) -> Deployment {
        Deployment {
            api: Some(api.to_owned()),
            region: region.map(str::to_owned),
            access_key: Some("AKID".to_owned()),
            secret_key: Some(Secret::new("CANARY")),
            session_token: Some(Secret::new("CANARY")),
            ..Deployment::default()
        }
    }

    fn name(deployment: &Deployment) -> Result<String, String> {
        let target = deployment.target(Timestamp::UNIX_EPOCH);
        target.map(|target| target.name).map_err(|complaint| complaint.to_string())
    }

    const AWS: &str = "https://abc.execute-api.eu-central-1.amazonaws.com";

    #[test]
    fn the_path_below_the_base_may_be_there_or_not() {
        for url in [AWS.to_owned(), format!("{AWS}/"), format!("{AWS}/v1"), format!("{AWS}/v1/")] {
            let target = on_aws(&url, None).target(Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(target.client.base(), AWS);
        }
    }

    /// CLI-wrong-environment
    #[test]
    fn a_deployment_on_aws_is_named_with_its_region_and_its_access_key() {
        let expected = format!("AWS at {AWS} (region eu-central-1, access key AKID)");
        assert_eq!(name(&on_aws(AWS, None)), Ok(expected.clone()));
        assert_eq!(name(&on_aws(AWS, Some("eu-central-1"))), Ok(expected));
    }

    /// CLI-wrong-environment
    #[test]
    fn a_region_that_contradicts_the_url_is_refused() {
        let refused = name(&on_aws(AWS, Some("us-east-1"))).unwrap_err();
        assert!(
            refused
                .contains("the URL is in eu-central-1, and AWS_REGION or --region says us-east-1")
        );
        let own = "https://postern.example.com";
        assert!(name(&on_aws(own, Some("us-east-1"))).unwrap().contains("region us-east-1"));
        assert!(name(&on_aws(own, None)).unwrap_err().contains("give --region"));
    }

    #[test]
    fn an_api_without_anything_that_proves_who_calls_is_not_called() {
        let nobody = Deployment { api: Some(AWS.to_owned()), ..Deployment::default() };
        assert!(name(&nobody).unwrap_err().contains("aws configure export-credentials"));
        let token = Deployment { token: Some(Secret::new("CANARY")), ..nobody };
        assert_eq!(name(&token), Ok(format!("the local host at {AWS}")));
    }

    #[test]
    fn what_proves_who_calls_is_not_sent_in_the_clear() {
        for url in ["http://127.0.0.1:8702", "http://localhost:8702/v1", "http://[::1]:8702"] {
            assert!(name(&on_aws(url, Some("x"))).is_ok(), "{url}");
        }
        for url in [
            "http://postern.example.com",
            "ftp://127.0.0.1",
            "postern.example.com",
            "https://me:pw@postern.example.com",
            "https://postern.example.com/?x",
            "",
        ] {
            let refused = name(&on_aws(url, Some("x"))).unwrap_err();
            assert!(refused.contains("is not the URL of an api"), "{url}: {refused}");
        }
    }

    /// SEC-secret-in-output
    #[test]
    fn secrets_of_a_deployment_do_not_print() {
        let deployment = Deployment { token: Some(Secret::new("CANARY")), ..on_aws(AWS, None) };
        let ready = Ready {
            control: String::new(),
            apis: std::collections::BTreeMap::new(),
            token: "CANARY".to_owned(),
        };
        let printed =
            format!("{deployment:?} {ready:?} {:?}", deployment.target(Timestamp::UNIX_EPOCH));
        assert!(!printed.contains("CANARY"), "{printed}");
    }

    #[test]
    fn a_local_host_is_found_by_what_it_left_in_its_state_folder() {
        let folder = tempfile::tempdir().unwrap();
        let state = Some(folder.path().to_owned());
        let local = Deployment { local: Local { state }, ..Deployment::default() };
        assert!(name(&local).unwrap_err().contains("no local host runs on"));
        fs::write(ready_file(folder.path()), "{\"token\": \"CANARY\"").unwrap();
        let broken = name(&local).unwrap_err();
        assert!(broken.contains("is not what a local host writes") && !broken.contains("CANARY"));
        let ready =
            r#"{"control":"c","apis":{"AdminApi":"http://127.0.0.1:8702"},"token":"t","more":1}"#;
        fs::write(ready_file(folder.path()), ready).unwrap();
        assert_eq!(name(&local), Ok("the local host at http://127.0.0.1:8702".to_owned()));
        fs::write(ready_file(folder.path()), r#"{"control":"c","apis":{},"token":"t"}"#).unwrap();
        assert!(name(&local).unwrap_err().contains("the local host runs no AdminApi"));
    }
}
