//! Secrets Manager, with the SDK.

use std::os::unix::fs::PermissionsExt as _;

use aws_sdk_secretsmanager::{
    error::ProvideErrorMetadata as _,
    operation::{create_secret::CreateSecretError, get_secret_value::GetSecretValueError},
};

use crate::{Host, client};

#[tokio::test]
async fn a_secret_is_made_read_replaced_and_deleted() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_secretsmanager, host);
    let name = "postern/dev/in/stripe-demo";
    let get = || client.get_secret_value().secret_id(name);
    let missing = get().send().await.unwrap_err().into_service_error();
    assert!(matches!(missing, GetSecretValueError::ResourceNotFoundException(_)), "{missing:?}");
    let made = client.create_secret().name(name).secret_string("one").send().await.unwrap();
    let arn = made.arn().unwrap();
    assert!(arn.starts_with(
        "arn:aws:secretsmanager:us-east-1:000000000000:secret:postern/dev/in/stripe-demo-"
    ));
    let again = client
        .create_secret()
        .name(name)
        .secret_string("x")
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    assert!(matches!(again, CreateSecretError::ResourceExistsException(_)));
    assert_eq!(get().send().await.unwrap().secret_string(), Some("one"));

    client.put_secret_value().secret_id(arn).secret_string("two").send().await.unwrap();
    assert_eq!(get().send().await.unwrap().secret_string(), Some("two"));
    let previous = get().version_stage("AWSPREVIOUS").send().await.unwrap();
    assert_eq!(previous.secret_string(), Some("one"));
    let token = "0123456789abcdef0123456789abcdef";
    for _ in 0..2 {
        let put = client.put_secret_value().secret_id(name).client_request_token(token);
        assert_eq!(put.secret_string("three").send().await.unwrap().version_id(), Some(token));
    }
    assert_eq!(
        get().version_stage("AWSPREVIOUS").send().await.unwrap().secret_string(),
        Some("two")
    );
    let other =
        client.put_secret_value().secret_id(name).client_request_token(token).secret_string("four");
    assert_eq!(other.send().await.unwrap_err().code(), Some("ResourceExistsException"));

    let listed = client.list_secrets().send().await.unwrap();
    assert_eq!(listed.secret_list()[0].name(), Some(name));
    assert_eq!(client.describe_secret().secret_id(name).send().await.unwrap().arn(), Some(arn));
    client.delete_secret().secret_id(name).send().await.unwrap();
    let deleted = get().send().await.unwrap_err().into_service_error();
    assert!(matches!(deleted, GetSecretValueError::InvalidRequestException(_)), "{deleted:?}");
    client
        .delete_secret()
        .secret_id(name)
        .force_delete_without_recovery(true)
        .send()
        .await
        .unwrap();
    client.create_secret().name(name).secret_string("new").send().await.unwrap();
}

#[tokio::test]
async fn a_secret_survives_a_restart_and_is_unreadable_on_disk() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), true).await;
    let sdk = client!(aws_sdk_secretsmanager, host);
    sdk.create_secret().name("s").secret_string("whsec_visible").send().await.unwrap();
    let binary = aws_sdk_secretsmanager::primitives::Blob::new([0, 159, 146, 150]);
    sdk.create_secret().name("b").secret_binary(binary.clone()).send().await.unwrap();
    host.stop().await;
    let key = state.path().join("keys/secrets.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    for entry in std::fs::read_dir(state.path().join("secrets")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("whsec"));
    }
    let host = Host::at(state.path(), true).await;
    let sdk = client!(aws_sdk_secretsmanager, host);
    assert_eq!(
        sdk.get_secret_value().secret_id("s").send().await.unwrap().secret_string(),
        Some("whsec_visible")
    );
    assert_eq!(
        sdk.get_secret_value().secret_id("b").send().await.unwrap().secret_binary(),
        Some(&binary)
    );
    host.stop().await;

    std::fs::write(&key, [7; 32]).unwrap();
    let host = Host::at(state.path(), true).await;
    let sdk = client!(aws_sdk_secretsmanager, host);
    let failed = sdk.get_secret_value().secret_id("s").send().await.unwrap_err();
    assert_eq!(failed.code(), Some("DecryptionFailure"));
}
