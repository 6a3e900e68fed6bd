//! Starting a process as `posix_spawn` does: the child borrows this process's memory until it executes its program.
//! Nothing is copied that the child would throw away at once, and an error reaches the parent through that memory.
//!
//! The launcher needs what the standard library's `Command` can't do without a copy of the whole process: a process
//! group of its own for the child, no controlling terminal, and its death with the parent. Tested here, and by
//! `tests/python/test_run.py`.

use crate::sys;
use std::ffi::{c_char, c_ulong, c_void, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

/// How much stack the child's own calls need, with room to spare. For a file that is neither a program nor has a `#!`, `execvpe` lays
/// down the list of words once more, behind the shell's name.
const STACK_BYTES: usize = 64 * 1024;

/// What is to be started.
pub struct Start<'a> {
    /// The file.
    pub program: &'a OsStr,
    /// The name that it is told to have, then its arguments.
    pub words: &'a [OsString],
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its standard input, where that is not this process's.
    pub input: Option<BorrowedFd<'a>>,
    /// Its standard output, and its standard error where it has no other.
    pub output: BorrowedFd<'a>,
    /// Its standard error, where that is not its standard output.
    pub error: Option<BorrowedFd<'a>>,
    /// A descriptor that it keeps under the same number.
    pub keeps: Option<BorrowedFd<'a>>,
    /// The cores that it may use, a bit each; none: all that this process may use.
    pub cores: &'a [c_ulong],
    /// The NUMA nodes whose memory it may use, a bit each; none: all that this process may use.
    pub memory_nodes: &'a [c_ulong],
    /// Whether it is killed when the thread that starts it ends.
    pub dies_with_parent: bool,
}

/// What the child reads, and where it writes why it could not become the program.
struct Plan<'a> {
    program: *const c_char,
    words: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    cores: &'a [c_ulong],
    memory_nodes: &'a [c_ulong],
    input: Option<RawFd>,
    output: RawFd,
    errors: RawFd,
    keeps: Option<RawFd>,
    dies_with: Option<i32>,
    /// What the child could not do, and why not.
    error: Option<(Step, Option<i32>)>,
}

/// What a child does before it is the program.
#[derive(Clone, Copy)]
enum Step {
    Own,
    BindCores,
    BindMemory,
    Exec,
}

/// Starts a process and returns its id. The process leads a process group of its own, blocks no signal, and no terminal
/// controls it. When this returns the program runs already, or the error says why it cannot. The error's kind is
/// `NotFound` if the program is not there, or cannot be executed.
pub fn start(what: &Start<'_>) -> io::Result<i32> {
    let program = text(what.program.to_owned())?;
    let words = what.words.iter().cloned().map(text).collect::<io::Result<Vec<CString>>>()?;
    let environment = what.environment.iter().map(variable).collect::<io::Result<Vec<CString>>>()?;
    let mut plan = Plan {
        program: program.as_ptr(),
        words: pointers(&words),
        environment: pointers(&environment),
        input: what.input.map(|fd| fd.as_raw_fd()),
        output: what.output.as_raw_fd(),
        errors: what.error.unwrap_or(what.output).as_raw_fd(),
        keeps: what.keeps.map(|fd| fd.as_raw_fd()),
        cores: what.cores,
        memory_nodes: what.memory_nodes,
        dies_with: what.dies_with_parent.then(|| std::process::id() as i32),
        error: None,
    };
    let pid = borrowing(&mut plan)?;
    match plan.error {
        None => Ok(pid),
        Some((step, error)) => {
            sys::await_end(pid);
            let error = io::Error::from_raw_os_error(error.unwrap_or(libc::EIO));
            Err(match step {
                Step::Own => error,
                // Also where the interpreter that runs the program is missing.
                Step::Exec if is_of_program(&error) => io::Error::new(io::ErrorKind::NotFound, error.to_string()),
                Step::Exec => error,
                Step::BindCores => io::Error::other(format!("it can't be bound to its cores: {error}")),
                Step::BindMemory => {
                    io::Error::other(format!("it can't be bound to the memory of its NUMA nodes: {error}"))
                }
            })
        }
    }
}

/// Whether it is the program itself that cannot be executed, and the reason is not a lack of something else.
fn is_of_program(error: &io::Error) -> bool {
    let of_program =
        [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::ENOTDIR, libc::ELOOP, libc::EISDIR, libc::ETXTBSY];
    error.raw_os_error().is_some_and(|number| of_program.contains(&number))
}

fn text(words: OsString) -> io::Result<CString> {
    CString::new(words.into_vec()).map_err(io::Error::from)
}

fn variable((name, value): &(OsString, OsString)) -> io::Result<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).map_err(io::Error::from)
}

/// Pointers to these texts as C wants them, with a null pointer at the end.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Makes a child that carries out this plan, in our memory and on a stack of its own, while this thread stands still.
fn borrowing(plan: &mut Plan<'_>) -> io::Result<i32> {
    let bytes = STACK_BYTES + (plan.words.len() + 3) * size_of::<*const c_char>();
    let mut stack: Vec<u128> = Vec::with_capacity(bytes.div_ceil(size_of::<u128>()));
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `child` runs on `stack`, which nobody else uses and which is aligned as a stack has to be; that and `plan`
    // outlive it, for with CLONE_VFORK the call returns when the child has executed its program or ended.
    let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(plan).cast()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pid)
}

/// The child. It makes only calls that are safe after a fork, allocates nothing, and takes no lock.
extern "C" fn child(plan: *mut c_void) -> libc::c_int {
    // SAFETY: `borrowing` passes its plan, and touches it again when this process has left its memory.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let (step, error) = become_program(plan);
    plan.error = Some((step, error.raw_os_error()));
    // SAFETY: ends this process alone, without the exit handlers of the memory's owner.
    unsafe { libc::_exit(127) }
}

/// Becomes the program. Returns only if that failed.
fn become_program(plan: &Plan<'_>) -> (Step, io::Error) {
    let standard = [(plan.input, 0), (Some(plan.output), 1), (Some(plan.errors), 2)];
    for (from, to) in standard {
        // SAFETY: takes numbers only, and is safe after fork.
        if from.is_some_and(|from| unsafe { libc::dup2(from, to) } < 0) {
            return (Step::Own, io::Error::last_os_error());
        }
    }
    if let Err(error) = sys::prepare_child(plan.dies_with, plan.keeps) {
        return (Step::Own, error);
    }
    if let Err(error) = sys::bind_cores(plan.cores) {
        return (Step::BindCores, error);
    }
    if let Err(error) = sys::bind_memory(plan.memory_nodes) {
        return (Step::BindMemory, error);
    }
    // SAFETY: the path and both lists end as C wants it, and live in the memory of the waiting parent.
    unsafe { libc::execvpe(plan.program, plan.words.as_ptr(), plan.environment.as_ptr()) };
    (Step::Exec, io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Ending;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    /// What `/bin/sh -c script` says, and how it ends.
    fn said(script: &str, environment: &[(&str, &str)], input: Option<BorrowedFd<'_>>) -> (String, Option<Ending>) {
        said_by("/bin/sh", &words(&["shell", "-c", script]), environment, input)
    }

    /// What a program says, and how it ends.
    fn said_by(
        program: &str,
        words: &[OsString],
        environment: &[(&str, &str)],
        input: Option<BorrowedFd<'_>>,
    ) -> (String, Option<Ending>) {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let what = Start {
            program: OsStr::new(program),
            words,
            environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            input,
            output: writer.as_fd(),
            error: None,
            keeps: None,
            cores: &[],
            memory_nodes: &[],
            dies_with_parent: true,
        };
        let pid = start(&what).unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (text, sys::await_end(pid))
    }

    #[test]
    fn a_child_gets_what_it_is_given_and_nothing_else() {
        let null = File::open("/dev/null").unwrap();
        let script = "echo $0 $COLOUR; echo error >&2; cat; set | grep -c ^HOME=; exit 7";
        let (text, ending) = said(script, &[("COLOUR", "blue = sky"), ("PATH", "/usr/bin:/bin")], Some(null.as_fd()));
        assert_eq!(text, "shell blue = sky\nerror\n0\n");
        assert_eq!(ending, Some(Ending::Exit(7)));
    }

    /// The C library lays down all words once more for such a file, on the stack that the child has been given.
    #[test]
    fn a_file_without_the_name_of_a_shell_may_have_many_words() {
        let path = format!("{}/muster-start-{}", std::env::temp_dir().display(), std::process::id());
        // Another process writes it: a child of this one's other threads could hold it open for writing.
        let make = format!("echo 'echo $#' > {path} && /bin/chmod 755 {path}");
        assert_eq!(said(&make, &[], None).1, Some(Ending::Exit(0)));
        let (text, ending) = said_by(&path, &words(&["w"; 100_001]), &[], None);
        assert_eq!((text.as_str(), ending), ("100000\n", Some(Ending::Exit(0))));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_child_leads_a_group_without_a_terminal_and_hears_every_signal() {
        let null = File::open("/dev/null").unwrap();
        let script = "read -r pid name state parent group session terminal rest < /proc/self/stat
            [ $pid = $group ] && [ $terminal = 0 ] && grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let (text, _) = said(script, &[("PATH", "/usr/bin:/bin")], Some(null.as_fd()));
        let sets: Vec<u64> =
            text.split_whitespace().skip(1).step_by(2).map(|set| u64::from_str_radix(set, 16).unwrap()).collect();
        let [blocked, ignored] = sets[..] else { panic!("{text}") };
        // What else is ignored here may come from the program that started this test.
        assert_eq!((blocked, ignored & 1 << (libc::SIGPIPE - 1)), (0, 0));
    }

    #[test]
    fn what_cannot_be_started_is_an_error_and_leaves_no_child() {
        let (_reader, writer) = UnixStream::pair().unwrap();
        let mut what = Start {
            program: OsStr::new("/no/such/program"),
            words: &words(&["none"]),
            environment: Vec::new(),
            input: None,
            output: writer.as_fd(),
            error: None,
            keeps: None,
            cores: &[],
            memory_nodes: &[],
            dies_with_parent: false,
        };
        assert_eq!(start(&what).unwrap_err().kind(), io::ErrorKind::NotFound);
        what.program = OsStr::new("/etc/passwd");
        let error = start(&what).unwrap_err();
        assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().contains("Permission denied"), "{error}");
        what.program = OsStr::new("with\0zero");
        assert_eq!(start(&what).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        what.program = OsStr::new("/bin/true");
        // No host has such a core or such a node.
        let far: Vec<c_ulong> = (0..512).map(|word| if word == 511 { 1 } else { 0 }).collect();
        what.cores = &far;
        assert!(start(&what).unwrap_err().to_string().starts_with("it can't be bound to its cores: "));
        (what.cores, what.memory_nodes) = (&[], &far);
        let error = start(&what).unwrap_err().to_string();
        assert!(error.starts_with("it can't be bound to the memory of its NUMA nodes: "), "{error}");
    }
}
