//! The environment of a function: the template's, and what Lambda adds.

use std::collections::BTreeMap;

use crate::wiring::Function;

/// Where the AWS services answer, and who runs.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The base URL of all services.
    pub aws: String,
    /// The AWS region.
    pub region: String,
    /// The `LOCAL_*` variables of the host, which it hands on.
    pub local: BTreeMap<String, String>,
}

/// All variables but those that belong to one process. Nothing else of the host's environment gets in.
#[must_use]
pub fn environment(function: &Function, around: &Surroundings) -> BTreeMap<String, String> {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let aws = &around.aws;
    let mut all = BTreeMap::from([
        own("PATH", "/usr/local/bin:/usr/bin:/bin"),
        own("LANG", "en_US.UTF-8"),
        own("TZ", ":UTC"),
        own("_HANDLER", "bootstrap"),
        own("AWS_REGION", &around.region),
        own("AWS_DEFAULT_REGION", &around.region),
        // The services tell callers apart by this id, and check no signature.
        own("AWS_ACCESS_KEY_ID", &format!("LOCAL{}", function.binary)),
        own("AWS_SECRET_ACCESS_KEY", "local"),
        own("AWS_EC2_METADATA_DISABLED", "true"),
        // Also a service that has no variable of its own must not be looked for on the Internet.
        own("AWS_ENDPOINT_URL", aws),
        own("AWS_ENDPOINT_URL_S3", &format!("{aws}/s3")),
        own("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
        own("AWS_LAMBDA_FUNCTION_NAME", &function.name),
        own("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        own("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", &function.memory_mb.to_string()),
        own("AWS_LAMBDA_LOG_GROUP_NAME", &format!("/aws/lambda/{}", function.name)),
    ]);
    for service in ["DYNAMODB", "SQS", "SECRETS_MANAGER", "KMS", "EVENTBRIDGE"] {
        all.insert(format!("AWS_ENDPOINT_URL_{service}"), aws.clone());
    }
    all.extend(around.local.clone());
    all.extend(function.environment.clone());
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_function_sees_the_template_lambda_and_local_and_nothing_else() {
        let function = Function {
            logical_id: "IngressFunction".into(),
            name: "stack-ingress".into(),
            binary: "ingress".into(),
            timeout: Duration::from_secs(6),
            memory_mb: 512,
            reserved_concurrency: None,
            environment: BTreeMap::from([("INBOX_TABLE".into(), "inbox".into())]),
            unattended: crate::wiring::Unattended::default(),
            role: "IngressRole".into(),
            events: vec![],
        };
        let around = Surroundings {
            aws: "http://127.0.0.1:8700".into(),
            region: "eu-central-1".into(),
            local: BTreeMap::from([("LOCAL_ALLOW_LOOPBACK".into(), "true".into())]),
        };
        let all = environment(&function, &around);
        for (name, value) in [
            ("INBOX_TABLE", "inbox"),
            ("AWS_ACCESS_KEY_ID", "LOCALingress"),
            ("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:8700"),
            ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8700/s3"),
            ("AWS_LAMBDA_FUNCTION_NAME", "stack-ingress"),
            ("AWS_REGION", "eu-central-1"),
            ("LOCAL_ALLOW_LOOPBACK", "true"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("AWS_SESSION_TOKEN") && !all.contains_key("CARGO_MANIFEST_DIR"));
    }
}
