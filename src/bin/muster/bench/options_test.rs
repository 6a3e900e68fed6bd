use super::*;
use crate::cli::words::{read, Asked};
use std::ffi::OsString;

fn parsed(line: &str) -> Result<Options, String> {
    match read(&COMMAND, line.split_whitespace().map(OsString::from).collect())? {
        Asked::With(words) => parse(&words),
        Asked::Help => panic!("{line} asks for no help"),
    }
}

#[test]
fn sizes_go_from_begin_to_end_by_factor_or_are_listed() {
    let sizes = |line: &str| parsed(line).unwrap().sizes;
    assert_eq!(sizes("allreduce -b 8 -e 1K -f 4"), [8, 32, 128, 512, 1024]);
    assert_eq!(sizes("allreduce -b 8 -e 512"), [8, 32, 128, 512]);
    assert_eq!(sizes("allreduce -e 1M").last(), Some(&(1 << 20)));
    assert_eq!(sizes("allreduce").last(), Some(&(64 << 20)));
    assert_eq!(sizes("allreduce --sizes 8,64K,1M,2g"), [8, 65_536, 1 << 20, 2 << 30]);
    assert_eq!(sizes("allreduce -b 1k -e 1k"), [1024]);
    assert_eq!(sizes("barrier"), [0]);
    let options = parsed("broadcast --worker_num 4 -r round -n 7 -c 0 -d int64 --barrier 1 --format csv").unwrap();
    assert_eq!((options.worker_num, options.root, options.iterations), (Some(4), Root::Round, Some(7)));
    assert_eq!((options.check, options.dtype), (false, DType::Int64));
    assert_eq!(parsed("reduce -o max --in_place 0").map(|it| (it.op, it.in_place)), Ok((ReduceOp::Max, false)));
    assert_eq!((options.name, options.barrier, options.format), ("broadcast", true, Format::Csv));
    assert_eq!(sizes("allreduce --sizes 8,8,64 --plot x.svg"), [8, 8, 64]);
}

#[test]
fn each_benchmark_says_what_it_ends_with() {
    for page in super::super::PAGES {
        let codes: Vec<&str> = page.exit_codes.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, ["0", "1", "2"], "{}", page.name);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (line, told) in [
        ("", "which collective?"),
        ("allredcue", "collective is \"allredcue\": expected one of allgather, allreduce"),
        ("allreduce -b", "-b needs a value: -b BYTES"),
        ("allreduce --nonsense 5", "there is no option --nonsense (muster bench --help lists them)"),
        ("allreduce --facter 5", "there is no option --facter; did you mean --factor?"),
        ("allreduce -c 1 extra", "\"extra\" is not expected: muster bench takes one collective"),
        ("allreduce -b 1T", "-b is \"1T\": expected a number of bytes"),
        ("allreduce -b +8K", "-b is \"+8K\": expected a number of bytes"),
        ("allreduce -n +5", "-n is \"+5\": expected a number from 1"),
        ("allreduce -b 0", "--begin is 0 bytes: expected 1 or more"),
        ("allreduce -b 9 -e 8", "--begin is 9 bytes: expected at most --end, which is 8"),
        ("allreduce -n 0", "-n is \"0\": expected a number from 1"),
        ("allreduce -d float8", "-d is \"float8\": expected one of float16, bfloat16, float32, float64"),
        ("reduce --worker_num 4 -r 4", "--root is 4: expected 0 to 3, or round"),
        ("allreduce -b 17G", "-b is \"17G\": expected a number of bytes up to 16G"),
        (
            "allreduce --sizes 8,",
            "--sizes is \"8,\": expected numbers of bytes up to 16G, as 4096 or 64K, with commas between",
        ),
        ("allreduce --sizes 8,17G", "--sizes is \"8,17G\": expected numbers of bytes up to 16G"),
        ("allreduce --sizes 8,7", "size 7 is no multiple of 4"),
        ("allreduce -b 4 -e 64 -d float64", "size 4 is no multiple of 8"),
        ("allreduce -e 1001", "size 1001 is no multiple of 4"),
        ("allreduce -c 2", "-c is \"2\": expected a number from 0 to 1"),
        ("allreduce --sizes 1G --plot x.svg", "--plot draws over size, and the only size is 1073741824: expected two"),
        ("allreduce --sizes 1K,1024 --plot x.svg", "--plot draws over size, and the only size is 1024: expected two"),
        ("allreduce -b 64 -e 64 --plot x.svg --beside y.csv", "--plot draws over size, and the only size is 64"),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(told), "{line}: {error}");
    }
}

#[test]
fn an_option_that_would_change_nothing_is_refused() {
    for (line, told) in [
        ("broadcast --op max", "--op means nothing to broadcast: it is for allreduce, reduce, reduce_scatter"),
        ("allreduce -r 1", "--root means nothing to allreduce: it is for broadcast, gather, reduce, scatter"),
        ("allgather --in_place 1", "--in_place means nothing to allgather: it is for allreduce, reduce"),
        ("barrier --sizes 8", "--sizes means nothing to barrier"),
        ("barrier -d int64", "--dtype means nothing to barrier"),
        ("barrier -c 1", "--check means nothing to barrier"),
        ("barrier --barrier 1", "--barrier means nothing to barrier"),
        ("allreduce --sizes 8 -e 64", "--end means nothing beside --sizes"),
        ("allreduce -f 2 --sizes 8", "--factor means nothing beside --sizes"),
    ] {
        assert!(parsed(line).unwrap_err().contains(told), "{line}: {:?}", parsed(line));
    }
}

#[test]
fn every_value_that_the_table_lists_is_taken() {
    let Operands::One { among, .. } = COMMAND.operands else { panic!("it takes a collective") };
    let named: Vec<&str> =
        COLLECTIVES.iter().map(|(name, _)| *name).chain(["bootstrap", "forming", "iallreduce", "store"]).collect();
    assert_eq!(among, named);
    for option in COMMAND.options {
        for word in option.takes.words() {
            let line = format!("reduce --{} {word}", option.name);
            assert!(parsed(&line).is_ok(), "{line}: {:?}", parsed(&line));
        }
    }
    assert_eq!(DTYPES.len(), COMMAND.options[8].takes.words().len());
    assert_eq!(OPS.len(), COMMAND.options[9].takes.words().len());
    assert_eq!(FORMATS.len(), FORMAT.takes.words().len());
}
