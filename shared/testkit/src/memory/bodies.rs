//! The bucket in memory.

use domain::ports::{Bodies, StoreError, Stored};

use super::Store;

impl Bodies for Store {
    async fn put(&self, name: &str, bytes: Vec<u8>) -> Stored<()> {
        self.call("bodies.put", |tables| {
            tables.bucket.insert(name.to_owned(), bytes);
        })
        .await
    }

    async fn get(&self, name: &str, limit: usize) -> Stored<Option<Vec<u8>>> {
        let found = self.call("bodies.get", |tables| tables.bucket.get(name).cloned()).await?;
        match found {
            Some(bytes) if bytes.len() > limit => {
                Err(StoreError::Unreadable(format!("{name} is larger than {limit} bytes")))
            }
            found => Ok(found),
        }
    }
}
