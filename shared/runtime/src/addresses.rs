//! What may be dialled beyond the public internet, as the environment says it.

use domain::address::{AddressPolicy, Ranges};

use crate::env::Env;

/// Reads `ALLOWED_RANGES`, which every function has that takes or dials an address somebody else chose, and what the
/// local host sets. `None`: something is wrong with it, and the function does not start.
pub fn policy(env: &mut Env) -> Option<AddressPolicy> {
    let ranges = ranges(env);
    let allow_loopback = env.optional_flag("LOCAL_ALLOW_LOOPBACK");
    let any_port = env.optional_flag("LOCAL_ALLOW_ANY_PORT");
    Some(AddressPolicy { allow_loopback: allow_loopback?, any_port: any_port?, ranges: ranges? })
}

fn ranges(env: &mut Env) -> Option<Ranges> {
    let texts = env.list("ALLOWED_RANGES")?;
    match Ranges::new(texts.iter().map(String::as_str)) {
        Ok(ranges) => Some(ranges),
        Err(bad) => {
            for reason in bad {
                env.problem::<()>("ALLOWED_RANGES", &format!("cannot be used: {reason}"));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ranges: &str) -> Result<AddressPolicy, Vec<String>> {
        let env = Env::over([("ALLOWED_RANGES", ranges)]);
        env.parse(policy).map_err(|bad| bad.problems().to_vec())
    }

    #[test]
    fn nothing_is_opened_unless_it_is_named() {
        assert_eq!(read(""), Ok(AddressPolicy::PUBLIC));
        let opened = read("10.20.0.0/16, fd12:3456::/32").unwrap();
        for address in ["10.20.1.1", "fd12:3456::1"] {
            assert!(opened.check(address.parse().unwrap()).is_ok(), "{address}");
        }
        assert!(!opened.allow_loopback && !opened.any_port);
        let absent = Env::over::<&str>([]).parse(policy).unwrap_err();
        assert!(absent.problems()[0].starts_with("ALLOWED_RANGES is not set"), "{absent}");
    }

    /// A function whose ranges are wrong does not start, and says of each what, why and what to do.
    #[test]
    fn every_bad_range_is_a_problem_of_the_environment() {
        assert_eq!(
            read("10.20.0.0/16,127.0.0.1/32,secret").unwrap_err(),
            [
                "ALLOWED_RANGES cannot be used: 127.0.0.1/32 is in 127.0.0.0/8, which is a loopback address and never \
                 opened; leave it out",
                "ALLOWED_RANGES cannot be used: range 3 is none; write an address and the length of its prefix, such as \
                 10.20.0.0/16",
            ]
        );
    }

    #[test]
    fn the_local_host_opens_this_machine() {
        let env = Env::over([
            ("ALLOWED_RANGES", ""),
            ("LOCAL_ALLOW_LOOPBACK", "true"),
            ("LOCAL_ALLOW_ANY_PORT", "true"),
        ]);
        assert_eq!(env.parse(policy), Ok(AddressPolicy::THIS_MACHINE));
    }
}
