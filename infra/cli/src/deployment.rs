//! Which deployment a command is for, and how it is proved who asks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aws_credential_types::Credentials;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Proof},
    complaint::Complaint,
};

/// Which deployment.
#[derive(clap::Args, Clone, Debug)]
pub struct Deployment {
    /// The URL of the deployment's api (the stack's output `AdminUrl`); without it, the one that `cargo dev` runs
    #[arg(long, global = true, env = "POSTERN_API", value_name = "URL")]
    pub api: Option<String>,

    /// The local host's token, where the api is a local one elsewhere
    #[arg(
        long,
        global = true,
        env = "POSTERN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,

    /// The state folder of the local host
    #[arg(long, global = true, value_name = "FOLDER", default_value = ".postern")]
    pub state: PathBuf,

    /// The AWS region, for signing calls of an api on AWS
    #[arg(long, global = true, env = "AWS_REGION", value_name = "REGION")]
    pub region: Option<String>,

    #[arg(long, hide = true, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    access_key: Option<String>,

    #[arg(long, hide = true, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret_key: Option<String>,

    #[arg(long, hide = true, env = "AWS_SESSION_TOKEN", hide_env_values = true)]
    session_token: Option<String>,
}

/// What the local host says when everything answers; kept in the state folder for other commands.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Ready {
    /// The control interface.
    pub control: String,
    /// HTTP APIs by logical id.
    pub apis: std::collections::BTreeMap<String, String>,
    /// Proves who calls.
    pub token: String,
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

/// Where the ready line of the local host is kept.
pub fn ready_file(state: &Path) -> PathBuf {
    state.join("ready.json")
}

impl Deployment {
    /// A client of the deployment's api.
    pub fn client(&self) -> Result<Client, Complaint> {
        let Some(url) = &self.api else { return self.local() };
        let url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        if let Some(token) = &self.token {
            return Client::new(url, Proof::Token(token.clone()));
        }
        let (Some(key), Some(secret)) = (&self.access_key, &self.secret_key) else {
            return Err(Complaint::new(
                format!("{url} asks who calls"),
                "there is neither a token nor an AWS key in the environment",
                "export AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN \
                 (`aws configure export-credentials --format env`), or give --token",
            ));
        };
        let Some(region) = &self.region else {
            return Err(Complaint::new(
                "calls of an api on AWS are signed for a region",
                "no region is given",
                "give --region or export AWS_REGION",
            ));
        };
        let session = self.session_token.clone();
        let credentials = Credentials::new(key, secret, session, None, "environment");
        Client::new(url, Proof::Iam { credentials, region: region.clone() })
    }

    fn local(&self) -> Result<Client, Complaint> {
        let ready = self.ready()?;
        Client::new(ready.api("AdminApi")?, Proof::Token(ready.token.clone()))
    }

    /// The local host, as it said when it was ready.
    pub fn ready(&self) -> Result<Ready, Complaint> {
        let file = ready_file(&self.state);
        let missing = |why: String| {
            Complaint::new(
                "it is not clear which deployment is meant",
                format!("{}: {why}", file.display()),
                "start `cargo dev` in another terminal, or give --api with the stack's AdminUrl",
            )
        };
        let text = fs::read_to_string(&file).map_err(|error| missing(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| missing(error.to_string()))
    }
}
