//! What the leading launcher and a host send each other: frames with a kind, a length and a body, over the standard
//! streams of what ssh runs there. Before its first frame a host says [`greeting`], for a login may write something
//! first.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How long a body may be: an environment and a command line, as Linux allows them.
const BODY_LIMIT: usize = 8 << 20;
const HEAD: usize = 5;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To a host: what it is to run ([`LaunchSpec`]).
    Launch,
    /// To a host: a signal for its launcher, a byte.
    Signal,
    /// To the host of the scheduler: on all other hosts everything has ended well.
    OthersDone,
    /// To a host: whether its output is to wait there ([`Hold`]).
    Hold,
    /// From a host: what its launcher writes to standard output.
    Output,
    /// From a host: what it writes to standard error.
    Words,
    /// From a host: the scheduler's port, and after a NUL the run's secret, if the host made one.
    Port,
    /// From the host of the scheduler, in words: how far the cluster is while it forms; empty once it has formed.
    Forming,
    /// From a host: something has failed there, and the rest is being stopped.
    Failing,
    /// From a host: how its part of the run went (`report`).
    Summary,
    /// From a host: its launcher has ended with this exit code, in decimal.
    Ended,
    /// From a host: it is still there.
    Beat,
}

/// Each kind with its byte.
const KINDS: [(Kind, u8); 12] = [
    (Kind::Launch, b'L'),
    (Kind::Signal, b'S'),
    (Kind::OthersDone, b'D'),
    (Kind::Hold, b'H'),
    (Kind::Output, b'O'),
    (Kind::Words, b'W'),
    (Kind::Port, b'P'),
    (Kind::Forming, b'G'),
    (Kind::Failing, b'F'),
    (Kind::Summary, b'U'),
    (Kind::Ended, b'E'),
    (Kind::Beat, b'B'),
];

/// What becomes of the output of a host's launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It comes.
    Comes,
    /// It waits there.
    Waits,
    /// One read of it comes, then it waits again. This shows that somebody still reads, so that a launcher with nothing
    /// else left to do goes on waiting for the reader.
    OneRead,
}

impl Hold {
    /// The frame that says so.
    pub fn frame(self) -> Frame {
        Frame::new(Kind::Hold, vec![self as u8])
    }

    /// What this byte of a frame says.
    pub fn of(byte: u8) -> Hold {
        match byte {
            1 => Hold::Waits,
            2 => Hold::OneRead,
            _ => Hold::Comes,
        }
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub body: Vec<u8>,
}

impl Frame {
    /// A frame of this kind with this body.
    pub fn new(kind: Kind, body: impl Into<Vec<u8>>) -> Frame {
        Frame { kind, body: body.into() }
    }

    /// Writes it as a whole.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let byte = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("the table has every kind").1;
        let mut bytes = vec![byte];
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend(&self.body);
        out.write_all(&bytes)?;
        out.flush()
    }
}

/// What a host says first. Both ends must be of one version, for nobody is promised that these frames stay the same.
pub fn greeting() -> String {
    format!("muster host-part {}\n", env!("CARGO_PKG_VERSION"))
}

/// Makes frames of the bytes that come.
#[derive(Debug, Default)]
pub struct Frames {
    pending: Vec<u8>,
}

impl Frames {
    /// More has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next frame, once it is whole.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        let Some((head, rest)) = self.pending.split_first_chunk::<HEAD>() else { return Ok(None) };
        let kind = KINDS.iter().find(|(_, byte)| *byte == head[0]).map(|(kind, _)| *kind);
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(kind) = kind.filter(|_| length <= BODY_LIMIT) else {
            return Err(io::Error::other("what it says is no frame of muster's"));
        };
        if rest.len() < length {
            return Ok(None);
        }
        let body = rest[..length].to_vec();
        self.pending.drain(..HEAD + length);
        Ok(Some(Frame { kind, body }))
    }
}

/// What a host is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The folder in which it runs.
    pub folder: OsString,
    /// The rank of its first worker.
    pub first_rank: u32,
    /// Whether it has the scheduler.
    pub has_scheduler: bool,
    /// Whether the prefix of each line of a worker has a colour.
    pub is_coloured: bool,
    /// Variables, beside those that a login there has.
    pub environment: Vec<(OsString, OsString)>,
    /// The words after `muster run`.
    pub words: Vec<OsString>,
}

impl LaunchSpec {
    /// The spec as a frame's body: texts with a NUL between them, which none of them can have.
    pub fn encode(&self) -> Vec<u8> {
        let is = [self.has_scheduler, self.is_coloured].map(u32::from);
        let numbers = [self.first_rank, is[0], is[1], self.environment.len() as u32];
        let mut texts: Vec<OsString> = vec![self.folder.clone()];
        texts.extend(numbers.iter().map(|number| OsString::from(number.to_string())));
        texts.extend(self.environment.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
        texts.extend(self.words.iter().cloned());
        texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>().join(&0)
    }

    /// Reads a spec; none if the body is something else.
    pub fn decode(body: &[u8]) -> Option<LaunchSpec> {
        let mut texts = body.split(|byte| *byte == 0).map(|bytes| OsString::from_vec(bytes.to_vec()));
        let folder = texts.next()?;
        let mut number = || texts.next()?.to_str()?.parse::<u32>().ok();
        let (first_rank, has_scheduler, is_coloured, variables) =
            (number()?, number()? == 1, number()? == 1, number()?);
        let mut environment = Vec::new();
        for _ in 0..variables {
            environment.push((texts.next()?, texts.next()?));
        }
        Some(LaunchSpec { folder, first_rank, has_scheduler, is_coloured, environment, words: texts.collect() })
    }
}

/// The texts in a body that has several, with NULs between them.
pub fn texts(body: &[u8]) -> Vec<String> {
    body.split(|byte| *byte == 0).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

/// These bytes as a text, whatever they are.
pub fn text(bytes: &[u8]) -> String {
    OsStr::from_bytes(bytes).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let sent: Vec<Frame> =
            KINDS.iter().map(|(kind, byte)| Frame::new(*kind, vec![*byte; *byte as usize])).collect();
        let mut bytes = Vec::new();
        sent.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        for size in [1, 3, bytes.len()] {
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.push(piece);
                while let Some(frame) = frames.next().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        for bytes in [&b"bash: muster: not found"[..], &[b'O', 255, 255, 255, 255]] {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert!(frames.next().is_err());
        }
    }

    #[test]
    fn a_launch_spec_is_read_as_it_was_written() {
        let environment = vec![("A".into(), "b=c\nd".into()), ("EMPTY".into(), "".into())];
        let words = vec!["--join=True".into(), "--".into(), "a.out".into(), "".into()];
        let spec = LaunchSpec {
            folder: "/a b".into(),
            first_rank: 4,
            has_scheduler: true,
            is_coloured: false,
            environment,
            words,
        };
        assert_eq!(LaunchSpec::decode(&spec.encode()), Some(spec));
        assert_eq!(LaunchSpec::decode(b"/\x001\x000\x000\x007"), None);
        assert_eq!(LaunchSpec::decode(b"/\x00x"), None);
    }
}
