//! One pass over a JSON text: all of it is checked, nothing is kept but where the wanted values are.

use std::borrow::Cow;

use super::Pointer;

/// The texts of the values at the pointers, without the blanks around them. `None` when the text is not one whole JSON value,
/// or an object on the way has a key that no text can be.
///
/// Recursion goes along pointers only. Of a key that occurs twice the last value counts, and nothing of the earlier ones.
pub(super) fn scan<'a>(text: &'a str, pointers: &[&Pointer]) -> Option<Vec<Option<&'a str>>> {
    let wanted =
        pointers.iter().map(|pointer| Wanted { steps: &pointer.0, matched: 0, found: None });
    let mut scan = Scan { text, at: 0, closers: Vec::new(), wanted: wanted.collect() };
    scan.blanks();
    scan.value(0)?;
    scan.blanks();
    let is_whole = scan.at == text.len();
    is_whole.then(|| scan.wanted.into_iter().map(|wanted| wanted.found).collect())
}

struct Scan<'a, 'p> {
    text: &'a str,
    /// The next byte.
    at: usize,
    /// What ends the containers that are being skipped, the innermost last.
    closers: Vec<u8>,
    wanted: Vec<Wanted<'a, 'p>>,
}

/// A pointer, and how many of its steps lead to where the scan is.
struct Wanted<'a, 'p> {
    steps: &'p [String],
    matched: usize,
    found: Option<&'a str>,
}

impl<'a> Scan<'a, '_> {
    /// Reads a value to which `level` steps lead.
    fn value(&mut self, level: usize) -> Option<()> {
        let goes_on =
            |wanted: &Wanted<'_, '_>| wanted.matched == level && wanted.steps.len() > level;
        match self.peek()? {
            b'{' if self.wanted.iter().any(goes_on) => self.object(level),
            b'[' if self.wanted.iter().any(goes_on) => self.array(level),
            _ => self.skip(),
        }
    }

    fn object(&mut self, level: usize) -> Option<()> {
        if self.is_empty(b'}') {
            return Some(());
        }
        loop {
            let key = self.key()?;
            self.member(level, |step| *step == key)?;
            if self.ends(b'}')? {
                return Some(());
            }
            self.blanks();
        }
    }

    fn array(&mut self, level: usize) -> Option<()> {
        if self.is_empty(b']') {
            return Some(());
        }
        for index in 0.. {
            self.member(level, |step| is_index(step, index))?;
            if self.ends(b']')? {
                break;
            }
        }
        Some(())
    }

    /// Reads a member of a container to which `level` steps lead, and remembers it for the pointers that it is the next step of.
    fn member(&mut self, level: usize, is_step: impl Fn(&str) -> bool) -> Option<()> {
        self.blanks();
        let mut is_wanted = false;
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.matched == level) {
            if wanted.steps.get(level).is_some_and(|step| is_step(step)) {
                *wanted = Wanted { matched: level + 1, found: None, ..*wanted };
                is_wanted = true;
            }
        }
        if !is_wanted {
            return self.skip();
        }
        let start = self.at;
        self.value(level + 1)?;
        let value = self.text.get(start..self.at);
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.matched > level) {
            wanted.matched = level;
            if wanted.steps.len() == level + 1 {
                wanted.found = value;
            }
        }
        Some(())
    }

    /// Reads any value and keeps nothing of it.
    fn skip(&mut self) -> Option<()> {
        self.closers.clear();
        loop {
            match self.peek()? {
                b'{' => {
                    if !self.is_empty(b'}') {
                        self.closers.push(b'}');
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    if !self.is_empty(b']') {
                        self.closers.push(b']');
                        continue;
                    }
                }
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.word("true")?,
                b'f' => self.word("false")?,
                b'n' => self.word("null")?,
                _ => return None,
            }
            loop {
                let Some(closer) = self.closers.last().copied() else { return Some(()) };
                if !self.ends(closer)? {
                    self.blanks();
                    if closer == b'}' {
                        self.name()?;
                    }
                    break;
                }
                self.closers.pop();
            }
        }
    }

    /// Steps into a container, and out of it if it is empty.
    fn is_empty(&mut self, closer: u8) -> bool {
        self.at += 1;
        self.blanks();
        self.takes(|byte| byte == closer)
    }

    /// Whether the container ends after a value; if not, there is a comma.
    fn ends(&mut self, closer: u8) -> Option<bool> {
        self.blanks();
        let byte = self.peek()?;
        self.at += 1;
        (byte == closer || byte == b',').then_some(byte == closer)
    }

    /// The key in front of a value, as it is meant.
    fn key(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        self.string()?;
        let quoted = self.text.get(start..self.at)?;
        self.colon()?;
        if quoted.contains('\\') {
            return serde_json::from_str(quoted).ok().map(Cow::Owned);
        }
        quoted.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed)
    }

    /// Skips the key in front of a value.
    fn name(&mut self) -> Option<()> {
        self.string()?;
        self.colon()
    }

    fn colon(&mut self) -> Option<()> {
        self.blanks();
        self.takes(|byte| byte == b':').then(|| self.blanks())
    }

    /// Whether surrogates come in pairs is not asked, as nowhere where a text is not used.
    fn string(&mut self) -> Option<()> {
        if !self.takes(|byte| byte == b'"') {
            return None;
        }
        loop {
            self.at += plain(self.rest());
            match self.rest() {
                [b'"', ..] => break,
                [b'\\', b'u', a, b, c, d, ..]
                    if [a, b, c, d].iter().all(|at| at.is_ascii_hexdigit()) =>
                {
                    self.at += 6;
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        self.takes(|byte| byte == b'-');
        if !self.takes(|byte| byte == b'0') {
            self.digits()?;
        }
        if self.takes(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.takes(|byte| matches!(byte, b'e' | b'E')) {
            self.takes(|byte| matches!(byte, b'+' | b'-'));
            self.digits()?;
        }
        Some(())
    }

    /// At least one.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.takes(|byte| byte.is_ascii_digit()) {}
        (self.at > start).then_some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.at += self.rest().starts_with(word.as_bytes()).then_some(word.len())?;
        Some(())
    }

    fn blanks(&mut self) {
        while self.takes(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r')) {}
    }

    /// Steps over one byte if it is such.
    fn takes(&mut self, is_such: impl Fn(u8) -> bool) -> bool {
        let takes = self.peek().is_some_and(is_such);
        self.at += usize::from(takes);
        takes
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }
}

/// Whether a step is this index, written as RFC 6901 has it: no sign, no leading zero.
fn is_index(step: &str, index: usize) -> bool {
    let is_canonical = step == "0" || step.starts_with(|first| matches!(first, '1'..='9'));
    is_canonical && step.parse() == Ok(index)
}

/// How many bytes stand for themselves in a string: up to a quote, a backslash or a control character. Eight at once.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let is_plain = |word: &&[u8; 8]| {
        let word = u64::from_ne_bytes(**word);
        let (quote, slash) = (word ^ ONES * u64::from(b'"'), word ^ ONES * u64::from(b'\\'));
        (below(word, 0x20) | below(quote, 1) | below(slash, 1)) & ONES * 0x80 == 0
    };
    let whole = bytes.as_chunks::<8>().0.iter().take_while(is_plain).count() * 8;
    let rest = bytes.get(whole..).unwrap_or_default();
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    whole + rest.iter().position(ends).unwrap_or(rest.len())
}
