//! KMS, with the SDK.

use aws_sdk_kms::{
    Client, error::ProvideErrorMetadata as _, operation::decrypt::DecryptError, primitives::Blob,
    types::DataKeySpec,
};

use crate::{Host, KEY, client};

async fn sealed(client: &Client, plain: &[u8]) -> Blob {
    let encrypt = client.encrypt().key_id(KEY).plaintext(Blob::new(plain));
    let encrypt =
        encrypt.encryption_context("tenant", "demo").encryption_context("endpoint", "ep_1");
    encrypt.send().await.unwrap().ciphertext_blob().unwrap().clone()
}

#[tokio::test]
async fn what_is_sealed_opens_only_with_the_same_context_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let host = Host::at(state.path(), true).await;
    let blob = sealed(&client!(aws_sdk_kms, host), b"whsec").await;
    assert!(!String::from_utf8_lossy(blob.as_ref()).contains("whsec"));
    host.stop().await;
    let host = Host::at(state.path(), true).await;
    let client = client!(aws_sdk_kms, host);
    let open = |pairs: &[(&str, &str)]| {
        let decrypt = client.decrypt().ciphertext_blob(blob.clone());
        pairs
            .iter()
            .fold(decrypt, |decrypt, (name, value)| decrypt.encryption_context(*name, *value))
            .send()
    };
    let opened = open(&[("endpoint", "ep_1"), ("tenant", "demo")]).await.unwrap();
    assert_eq!(opened.plaintext().unwrap().as_ref(), b"whsec");
    assert_eq!(opened.key_id(), Some(KEY));
    for context in [&[][..], &[("tenant", "demo")], &[("tenant", "demo"), ("endpoint", "ep_2")]] {
        let failed = open(context).await.unwrap_err().into_service_error();
        assert!(matches!(failed, DecryptError::InvalidCiphertextException(_)), "{failed:?}");
    }
}

#[tokio::test]
async fn damaged_blobs_and_unknown_keys_are_refused_by_type() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_kms, host);
    let blob = sealed(&client, b"x").await.into_inner();
    let mut changed = blob.clone();
    *changed.last_mut().unwrap() ^= 1;
    for bytes in [
        changed,
        blob[..20].to_vec(),
        vec![],
        vec![1, 255, 0],
        b"\x01\x05other and more".to_vec(),
        b"nonsense".to_vec(),
    ] {
        let decrypt = client.decrypt().ciphertext_blob(Blob::new(bytes.clone()));
        let decrypt =
            decrypt.encryption_context("tenant", "demo").encryption_context("endpoint", "ep_1");
        let failed = decrypt.send().await.unwrap_err().into_service_error();
        assert!(
            matches!(failed, DecryptError::InvalidCiphertextException(_)),
            "{bytes:?} {failed:?}"
        );
    }
    let unknown =
        client.encrypt().key_id("other").plaintext(Blob::new(b"x")).send().await.unwrap_err();
    assert_eq!(unknown.code(), Some("NotFoundException"));
    let long =
        client.encrypt().key_id(KEY).plaintext(Blob::new(vec![0; 4097])).send().await.unwrap_err();
    assert_eq!(long.code(), Some("ValidationException"));
}

#[tokio::test]
async fn a_data_key_comes_plain_and_sealed() {
    let host = Host::in_memory().await;
    let client = client!(aws_sdk_kms, host);
    let made =
        client.generate_data_key().key_id(KEY).key_spec(DataKeySpec::Aes256).send().await.unwrap();
    assert_eq!(made.plaintext().unwrap().as_ref().len(), 32);
    let opened = client
        .decrypt()
        .ciphertext_blob(made.ciphertext_blob().unwrap().clone())
        .send()
        .await
        .unwrap();
    assert_eq!(opened.plaintext(), made.plaintext());
}
