//! S3, path style: Put (also only-if-absent), Get (also a range), Head, Delete, and the bulk delete that clients prefer.
//!
//! Each object is a file under `<state>/s3/<bucket>/`; its name is the key, encoded so that no key leaves the folder.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, header},
    response::Response,
};
use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::{
    answer::{AwsError, respond},
    files::{self, Existing},
};

/// S3's limit for a key.
const KEY_BYTES: usize = 1024;

/// The buckets of the stack.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    folder: PathBuf,
    buckets: Arc<Vec<String>>,
}

/// What a request for an object asks.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) bucket: String,
    /// Decoded; empty for the bucket itself.
    pub(super) key: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Asked {
    /// The API's name for it.
    pub(super) fn action(&self) -> &'static str {
        match (&self.method, self.key.is_empty()) {
            (&Method::PUT, false) => "PutObject",
            (&Method::GET, false) => "GetObject",
            (&Method::HEAD, false) => "HeadObject",
            (&Method::DELETE, false) => "DeleteObject",
            (&Method::POST, true) if self.is_bulk_delete() => "DeleteObjects",
            _ => "Unsupported",
        }
    }

    /// The IAM action.
    pub(super) fn iam_action(&self) -> &'static str {
        match self.action() {
            "PutObject" => "s3:PutObject",
            "GetObject" | "HeadObject" => "s3:GetObject",
            "DeleteObject" | "DeleteObjects" => "s3:DeleteObject",
            _ => "s3:Unsupported",
        }
    }

    pub(super) fn resource(&self) -> String {
        format!(
            "arn:aws:s3:::{}/{}",
            self.bucket,
            if self.key.is_empty() { "*" } else { &self.key }
        )
    }

    fn is_bulk_delete(&self) -> bool {
        self.query.split('&').any(|part| part == "delete" || part == "delete=")
    }
}

impl Objects {
    pub(super) fn open(folder: &Path, buckets: &[String]) -> io::Result<Self> {
        for bucket in buckets {
            std::fs::create_dir_all(folder.join(bucket))?;
        }
        Ok(Self { folder: folder.to_owned(), buckets: Arc::new(buckets.to_vec()) })
    }

    /// Does it; blocks on the disk.
    pub(super) fn call(&self, asked: &Asked) -> Result<Response, AwsError> {
        if !self.buckets.contains(&asked.bucket) {
            return Err(missing(
                "NoSuchBucket",
                "The specified bucket does not exist; buckets come from the template",
            ));
        }
        if asked.key.len() > KEY_BYTES {
            return Err(AwsError::sender("KeyTooLongError", "Your key is too long"));
        }
        let path = self.folder.join(&asked.bucket).join(encoded(&asked.key));
        match asked.action() {
            "PutObject" => put(&path, asked),
            "GetObject" | "HeadObject" => get(&path, asked),
            "DeleteObject" => {
                remove(&path)?;
                Ok(respond(204, "application/xml", Body::empty()))
            }
            "DeleteObjects" => self.delete_all(asked),
            _ => Err(AwsError {
                status: 501,
                ..AwsError::sender(
                    "NotImplemented",
                    "The local host offers Put, Get, Head and Delete of objects only",
                )
            }),
        }
    }

    fn delete_all(&self, asked: &Asked) -> Result<Response, AwsError> {
        let text = String::from_utf8_lossy(&asked.body);
        let mut deleted = String::new();
        for part in text.split("<Key>").skip(1) {
            let Some((key, _)) = part.split_once("</Key>") else {
                return Err(AwsError::sender(
                    "MalformedXML",
                    "The XML you provided was not well-formed",
                ));
            };
            remove(&self.folder.join(&asked.bucket).join(encoded(&unescaped(key))))?;
            deleted.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult>{deleted}</DeleteResult>"
        );
        Ok(respond(200, "application/xml", Body::from(body)))
    }
}

fn put(path: &Path, asked: &Asked) -> Result<Response, AwsError> {
    let only_if_absent = match asked.headers.get(header::IF_NONE_MATCH).map(HeaderValue::as_bytes) {
        None => false,
        Some(b"*") => true,
        Some(_) => {
            return Err(AwsError {
                status: 501,
                ..AwsError::sender("NotImplemented", "If-None-Match may be * only")
            });
        }
    };
    let streamed = asked
        .headers
        .get("x-amz-content-sha256")
        .is_some_and(|value| value.as_bytes().starts_with(b"STREAMING"));
    if streamed || !asked.query.is_empty() || asked.headers.contains_key(header::IF_MATCH) {
        let message =
            "The local host offers neither chunked signatures, multipart uploads nor If-Match";
        return Err(AwsError { status: 501, ..AwsError::sender("NotImplemented", message) });
    }
    let existing = if only_if_absent { Existing::Keep } else { Existing::Replace };
    match files::write(path, &asked.body, existing) {
        Ok(()) => {
            let mut response = respond(200, "application/xml", Body::empty());
            tag(&mut response, &asked.body);
            Ok(response)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(AwsError {
            status: 412,
            ..AwsError::sender(
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
            )
        }),
        Err(error) => Err(broken(&error)),
    }
}

fn get(path: &Path, asked: &Asked) -> Result<Response, AwsError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => Bytes::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(missing("NoSuchKey", "The specified key does not exist."));
        }
        Err(error) => return Err(broken(&error)),
    };
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let range = asked.headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let (status, part) = match range.map(|range| within(range, bytes.len())) {
        None => (200, 0..bytes.len()),
        Some(Some(part)) => (206, part),
        Some(None) => {
            return Err(AwsError {
                status: 416,
                ..AwsError::sender("InvalidRange", "The requested range is not satisfiable")
            });
        }
    };
    let content = bytes.slice(part.clone());
    // for HEAD the server sends the length of the body that it leaves out
    let mut response = respond(status, "application/octet-stream", Body::from(content));
    tag(&mut response, &bytes);
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == 206 {
        let value = format!("bytes {}-{}/{}", part.start, part.end.saturating_sub(1), bytes.len());
        headers.extend(HeaderValue::from_str(&value).map(|value| (header::CONTENT_RANGE, value)));
    }
    let date = modified.and_then(|time| jiff::Timestamp::try_from(time).ok());
    if let Some(date) = date {
        let text = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        headers.extend(HeaderValue::from_str(&text).map(|value| (header::LAST_MODIFIED, value)));
    }
    Ok(response)
}

fn remove(path: &Path) -> Result<(), AwsError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(broken(&error)),
    }
}

fn tag(response: &mut Response, bytes: &[u8]) {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{}\"", hex::encode(Md5::digest(bytes)))) {
        response.headers_mut().insert(header::ETAG, value);
    }
}

fn missing(kind: &str, message: &str) -> AwsError {
    AwsError { status: 404, ..AwsError::sender(kind, message) }
}

fn broken(error: &io::Error) -> AwsError {
    AwsError::internal("InternalError", format!("the object's file cannot be used: {error}"))
}

/// An S3 error: XML, unlike the other services'.
pub(super) fn error(error: &AwsError) -> Response {
    let message = error.message.replace('&', "&amp;").replace('<', "&lt;");
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{message}</Message></Error>",
        error.kind
    );
    respond(error.status, "application/xml", Body::from(body))
}

/// One range of bytes of an object; `None` if there is no such range in it.
fn within(range: &str, length: usize) -> Option<std::ops::Range<usize>> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let part = match (from.trim(), to.trim()) {
        ("", last) => length.saturating_sub(last.parse().ok().filter(|count| *count > 0)?)..length,
        (first, "") => first.parse().ok()?..length,
        (first, last) => {
            first.parse().ok()?..last.parse::<usize>().ok()?.checked_add(1)?.min(length)
        }
    };
    (part.start < part.end).then_some(part)
}

/// The path of a key below its bucket: what is not plain is written `%xx`, folders end in `+`, so that neither `..` nor a
/// key that is also another's folder does harm.
fn encoded(key: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let mut segments = key.split('/').peekable();
    while let Some(segment) = segments.next() {
        let mut name = segment_name(segment);
        if segments.peek().is_some() {
            name.push('+');
        }
        path.push(name);
    }
    path
}

fn segment_name(segment: &str) -> String {
    use sha2::Sha256;
    // file names end at 255 bytes
    if segment.len() > 80 && segment.bytes().any(|byte| !is_plain(byte)) || segment.len() > 200 {
        return format!("~{}", hex::encode(Sha256::digest(segment.as_bytes())));
    }
    let mut name = String::new();
    for (index, byte) in segment.bytes().enumerate() {
        if is_plain(byte) || (byte == b'.' && index > 0) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.is_empty() { "%".to_owned() } else { name }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leaves_its_folder_and_no_two_keys_share_a_file() {
        let keys = [
            "a",
            "a/b",
            "a/",
            "/a",
            "..",
            "../x",
            "a/../../x",
            ".",
            "a+",
            "a+/b",
            "%2E",
            "é",
            "~",
            ".hidden",
            "a//b",
            "A",
            &"x".repeat(300),
            &"é".repeat(100),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for key in keys {
            let path = encoded(key);
            assert!(
                path.components().all(|part| matches!(part, std::path::Component::Normal(_))),
                "{key} -> {path:?}"
            );
            assert!(path.iter().all(|part| part.len() <= 255), "{key}");
            assert!(seen.insert(path.clone()), "{key} -> {path:?}");
        }
        let dirs: Vec<_> =
            seen.iter().flat_map(|path| path.ancestors().skip(1)).map(Path::to_path_buf).collect();
        assert!(seen.iter().all(|file| !dirs.contains(file)), "a file is also a folder");
    }

    #[test]
    fn a_range_is_part_of_the_object_or_refused() {
        let check = |range: &str, expected: Option<std::ops::Range<usize>>| {
            assert_eq!(within(range, 10), expected, "{range}");
        };
        check("bytes=0-3", Some(0..4));
        check("bytes=4-", Some(4..10));
        check("bytes=-3", Some(7..10));
        check("bytes=-30", Some(0..10));
        check("bytes=5-99", Some(5..10));
        check("bytes=10-", None);
        check("bytes=5-4", None);
        check("bytes=-0", None);
        check("bytes=0-18446744073709551615", None);
        check("items=0-3", None);
    }
}
