//! What a receiver sends does not decide how much memory an attempt holds.
//!
//! The allocator counts what the attempt's own thread holds at most. The receiver lives in another thread, so that what it
//! sends is nobody's but its own.

use std::{io::Write as _, sync::mpsc, thread};

use flate2::{Compression, write::GzEncoder};

use super::{Authority, BOUNDS, Cause, Client, Port, Script, attempt, flood, listen, receive};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Builder,
    sync::oneshot,
};

/// Most that an attempt may hold more than one that meets an ordinary answer.
const MORE: u64 = 256 * 1024;

/// A receiver in a thread of its own, which ends with this value.
struct Apart {
    port: Port,
    /// Dropped, it ends the receiver's thread.
    _alive: oneshot::Sender<()>,
}

fn apart<F>(receiver: impl FnOnce() -> F + Send + 'static) -> Apart
where
    F: Future<Output = Port>,
{
    let (alive, ended) = oneshot::channel();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tell.send(receiver().await).unwrap();
            let _ = ended.await;
        });
    });
    Apart { port: told.recv().unwrap(), _alive: alive }
}

/// How an attempt at a receiver ended, and the most bytes that it held.
fn held(authority: &Authority, receiver: &Apart) -> (Result<u16, Cause>, u64) {
    let client = || authority.dialler(Script::loopback(), BOUNDS).client();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut ended = Err(Cause::Internal);
    let held = allocation_counter::measure(|| {
        ended = runtime.block_on(async {
            let client: Client<Script> = client();
            let answered = attempt(&client, &receiver.port.url()).await;
            answered.map(|answered| answered.status).map_err(|failed| failed.cause)
        });
    });
    (ended, held.bytes_max)
}

/// A receiver that answers with a beginning and then with the same bytes again and again.
fn flooding(authority: &Authority, first: Vec<u8>, again: Vec<u8>) -> Apart {
    let tls = authority.good_receiver();
    apart(move || {
        receive(tls, move |mut stream| {
            let (first, again) = (first.clone(), again.clone());
            async move {
                let _ = stream.write_all(&first).await;
                flood(&mut stream, &again).await;
            }
        })
    })
}

/// DLV-huge-response, DLV-slow-drip, DLV-compressed-response-bomb
#[test]
fn no_answer_makes_an_attempt_hold_much() {
    let authority = Authority::new();
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let (ended, ordinary) = held(&authority, &flooding(&authority, ok, Vec::new()));
    assert_eq!(ended, Ok(200));
    let head = |headers: &str| format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes();
    let zeros = vec![0; 64 * 1024];
    for (name, first, again, expected) in [
        ("a body without an end", head(""), zeros.clone(), Ok(200)),
        ("a gigabyte", head("content-length: 1073741824\r\n"), zeros.clone(), Ok(200)),
        ("more than it said", head("content-length: 10\r\n"), zeros.clone(), Ok(200)),
        (
            "one chunk",
            head("transfer-encoding: chunked\r\n"),
            b"fffffff\r\nx".repeat(9000),
            Ok(200),
        ),
        (
            "small chunks",
            head("transfer-encoding: chunked\r\n"),
            b"1\r\nx\r\n".repeat(9000),
            Ok(200),
        ),
        (
            "a gzip bomb",
            head("content-encoding: gzip\r\ncontent-length: 1073741824\r\n"),
            gzip_bomb(),
            Ok(200),
        ),
        ("two layers", head("content-encoding: gzip, gzip\r\n"), gzip_bomb(), Ok(200)),
        (
            "headers without an end",
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            b"x-pad: yyyyyyyyyyyyyyyy\r\n".repeat(2000),
            Err(Cause::BadAnswer),
        ),
        (
            "a header without an end",
            b"HTTP/1.1 200 OK\r\nx: ".to_vec(),
            b"y".repeat(64_000),
            Err(Cause::BadAnswer),
        ),
        (
            "a status without an end",
            b"HTTP/1.1 200 ".to_vec(),
            b"O".repeat(64_000),
            Err(Cause::BadAnswer),
        ),
        (
            "interim answers",
            Vec::new(),
            b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n".repeat(2000),
            Err(Cause::Timeout),
        ),
        (
            "trailers without an end",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n".to_vec(),
            b"x: y\r\n".repeat(9000),
            Ok(200),
        ),
        (
            "an extension without an end",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;".to_vec(),
            b"x".repeat(64_000),
            Ok(200),
        ),
    ] {
        let (ended, held) = held(&authority, &flooding(&authority, first, again));
        assert_eq!(ended, expected, "{name}");
        assert!(
            held < ordinary + MORE,
            "{name}: {held} bytes, and {ordinary} at an ordinary answer"
        );
    }
}

/// DLV-compressed-response-bomb: 16 MiB of zeros in 16 KB, and again and again.
fn gzip_bomb() -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![0; 16 * 1024 * 1024]).unwrap();
    gzip.finish().unwrap()
}

/// Handshakes that never end, or that say they will be large.
#[test]
fn no_handshake_makes_an_attempt_hold_much() {
    let authority = Authority::new();
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let (_, ordinary) = held(&authority, &flooding(&authority, ok, Vec::new()));
    for (name, first, again) in [
        (
            "a handshake of 16 MB",
            &[0x16, 3, 3, 0x40, 0, 0x0b, 0xff, 0xff, 0xff][..],
            &[0; 16384][..],
        ),
        ("empty fragments", &[], &[0x16, 3, 3, 0, 0]),
        ("changes of cipher", &[], &[0x14, 3, 3, 0, 1, 1]),
        ("warnings", &[], &[0x15, 3, 3, 0, 2, 1, 90]),
        ("noise", &[], &[0x5a; 16384]),
    ] {
        let receiver = apart(move || {
            listen(move |mut stream| async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(first).await;
                flood(&mut stream, again).await;
            })
        });
        let (ended, held) = held(&authority, &receiver);
        assert!(
            matches!(ended, Err(Cause::Tls | Cause::Timeout | Cause::Reset)),
            "{name}: {ended:?}"
        );
        assert!(
            held < ordinary + MORE,
            "{name}: {held} bytes, and {ordinary} at an ordinary answer"
        );
    }
}
