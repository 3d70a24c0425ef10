//! W3C trace context, version 00.

use domain::{body::Sha256Hash, outbox::rules::trace_parts};

/// A span below this one. Its id is made of `what` alone, so that whoever knows the attempt can find the span.
pub(super) fn child(parent: &str, what: &str) -> Option<String> {
    let (trace, parent, flags) = trace_parts(parent)?;
    let hash = Sha256Hash::of(format!("{trace} {parent} {what}").as_bytes()).to_string();
    let span = hash.get(..16)?;
    Some(format!("00-{trace}-{span}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_trace_context_has_no_child() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(child(good, "a"), child(good, "a"));
        assert_ne!(child(good, "a"), child(good, "b"));
        for bad in [
            "",
            "00-\r\nx: y",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(child(bad, "a"), None, "{bad}");
        }
    }
}
