//! Comparing the numbers of two JSON documents without losing digits: an id of 17 digits is no other number than it is,
//! also when a float of that size could not tell it from its neighbour.

use std::cmp::Ordering;

use serde_json::Number;

/// Compares two numbers by value.
pub(super) fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => with_float(a, float(b)),
        (None, Some(b)) => with_float(b, float(a)).reverse(),
        (None, None) => order(float(a), float(b)),
    }
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or_default()
}

/// JSON has no number that is not comparable.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn with_float(whole: i128, float: f64) -> Ordering {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, far beyond any whole number that a document can hold (64 bits)"
    )]
    let floor = float.floor() as i128;
    whole.cmp(&floor).then_with(|| order(0.0, float - float.floor()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[track_caller]
    fn check(a: &str, b: &str, expected: Ordering) {
        assert_eq!(compare(&number(a), &number(b)), expected, "{a} {b}");
        assert_eq!(compare(&number(b), &number(a)), expected.reverse(), "{b} {a}");
    }

    #[test]
    fn numbers_compare_by_value_and_not_by_how_they_are_written() {
        check("1", "1.0", Ordering::Equal);
        check("100", "1e2", Ordering::Equal);
        check("0", "-0.0", Ordering::Equal);
        check("1", "1.5", Ordering::Less);
        check("2", "1.5", Ordering::Greater);
        check("-1", "-1.5", Ordering::Greater);
        check("-2", "-1.5", Ordering::Less);
        check("0.1", "0.2", Ordering::Less);
        check("1e300", "9223372036854775807", Ordering::Greater);
        check("-1e300", "-9223372036854775808", Ordering::Less);
    }

    #[test]
    fn large_whole_numbers_keep_their_digits() {
        check("9007199254740993", "9007199254740992", Ordering::Greater);
        check("9007199254740993", "9007199254740992.0", Ordering::Greater);
        check("18446744073709551615", "18446744073709551614", Ordering::Greater);
        check("18446744073709551615", "-9223372036854775808", Ordering::Greater);
        check("9223372036854775807", "9.3e18", Ordering::Less);
    }

    proptest! {
        #[test]
        fn whole_numbers_order_as_they_do(a: i64, b: u64) {
            let whole = i128::from(a).cmp(&i128::from(b));
            prop_assert_eq!(compare(&a.into(), &b.into()), whole);
        }

        /// Floats of 53 bits are whole numbers too, and lie between the same neighbours.
        #[test]
        fn a_float_between_two_whole_numbers_orders_so(a in -(1_i64 << 51)..(1_i64 << 51)) {
            let half = Number::from_f64(f64::from(i32::try_from(a >> 20).unwrap()) + 0.5).unwrap();
            let below = Number::from(a >> 20);
            let above = Number::from((a >> 20) + 1);
            prop_assert_eq!(compare(&half, &below), Ordering::Greater);
            prop_assert_eq!(compare(&half, &above), Ordering::Less);
        }
    }
}
