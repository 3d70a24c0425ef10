//! The rules of [`domain::ports::SetSourceSecrets`].

use domain::{
    id::SourceName,
    ports::{Changed, SetSourceSecrets, SourceSecret},
    secret::SecretText,
};
use jiff::Timestamp;

use super::{Kept, given::at, rules};

/// Runs the rules of [`domain::ports::SetSourceSecrets`], each on fresh secrets.
pub async fn secrets<S: SetSourceSecrets>(fresh: impl AsyncFn() -> S) {
    rules!(fresh:
        secrets_are_created_once,
        a_secret_is_added_in_front_and_the_others_end,
        a_secret_may_be_the_first,
        a_secret_is_removed_by_its_id,
        a_secret_ends_when_it_is_told_to,
    );
}

fn hub() -> SourceName {
    "hub".parse().unwrap()
}

fn secret(id: &str, text: &str, expires_at: Option<Timestamp>) -> SourceSecret {
    SourceSecret { id: id.to_owned(), text: SecretText::new(text.to_owned()), expires_at }
}

async fn list(
    on: &impl SetSourceSecrets,
) -> Result<Vec<(String, String, Option<Timestamp>)>, domain::ports::StoreError> {
    let secrets = on.of(&hub()).await?;
    let plain =
        |secret: SourceSecret| (secret.id, secret.text.expose().to_owned(), secret.expires_at);
    Ok(secrets.into_iter().map(plain).collect())
}

fn line(id: &str, text: &str, expires_at: Option<i64>) -> (String, String, Option<Timestamp>) {
    (id.to_owned(), text.to_owned(), expires_at.map(at))
}

async fn secrets_are_created_once(on: &impl SetSourceSecrets) -> Kept {
    assert!(on.of(&hub()).await?.is_empty());
    assert!(on.create(&hub(), &[secret("a", "1", None)]).await?);
    assert!(!on.create(&hub(), &[secret("b", "2", None)]).await?);
    assert_eq!(list(on).await?, [line("a", "1", None)]);
    Ok(())
}

async fn a_secret_is_added_in_front_and_the_others_end(on: &impl SetSourceSecrets) -> Kept {
    let old = [secret("a", "1", None), secret("b", "2", Some(at(50)))];
    on.create(&hub(), &old).await?;
    let added = on.add(&hub(), &secret("c", "3", None), Some(at(100))).await?;
    assert_eq!(added, Changed::Yes);
    let all = [line("c", "3", None), line("a", "1", Some(100)), line("b", "2", Some(50))];
    assert_eq!(list(on).await?, all);
    // The answer to the first try was lost: the overlap of the first try stands.
    let again = on.add(&hub(), &secret("c", "3", None), Some(at(200))).await?;
    assert_eq!((again, list(on).await?), (Changed::Yes, all.to_vec()));
    let other = on.add(&hub(), &secret("c", "4", None), None).await?;
    assert_eq!((other, list(on).await?), (Changed::IdTaken, all.to_vec()));
    Ok(())
}

async fn a_secret_may_be_the_first(on: &impl SetSourceSecrets) -> Kept {
    assert_eq!(on.add(&hub(), &secret("a", "1", None), None).await?, Changed::Yes);
    assert_eq!(list(on).await?, [line("a", "1", None)]);
    assert!(!on.create(&hub(), &[secret("b", "2", None)]).await?);
    Ok(())
}

async fn a_secret_is_removed_by_its_id(on: &impl SetSourceSecrets) -> Kept {
    on.create(&hub(), &[secret("a", "1", None), secret("b", "2", None)]).await?;
    assert_eq!(on.remove(&hub(), "c").await?, Changed::NoSuchId);
    assert_eq!(on.remove(&hub(), "a").await?, Changed::Yes);
    assert_eq!(list(on).await?, [line("b", "2", None)]);
    let nobody = "nobody".parse().unwrap();
    assert_eq!(on.remove(&nobody, "a").await?, Changed::NoSuchId);
    Ok(())
}

async fn a_secret_ends_when_it_is_told_to(on: &impl SetSourceSecrets) -> Kept {
    on.create(&hub(), &[secret("a", "1", None)]).await?;
    assert_eq!(on.expire(&hub(), "a", Some(at(60))).await?, Changed::Yes);
    assert_eq!(list(on).await?, [line("a", "1", Some(60))]);
    assert_eq!(on.expire(&hub(), "a", None).await?, Changed::Yes);
    assert_eq!(list(on).await?, [line("a", "1", None)]);
    assert_eq!(on.expire(&hub(), "b", None).await?, Changed::NoSuchId);
    Ok(())
}
