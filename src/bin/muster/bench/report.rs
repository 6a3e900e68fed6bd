//! The table of a benchmark, as text, CSV or JSON.

use super::measure::Row;
use super::options::{has_root, reduces, Collective, Format, Options, Root};

/// What precedes the rows.
pub fn head(options: &Options, ranks: usize) -> String {
    match options.format {
        Format::Csv => "collective,ranks,bytes,count,dtype,op,root,iterations,p50_us,p95_us,p50_rank0_us,\
                        algbw_gb_s,busbw_gb_s,wrong\n"
            .to_owned(),
        Format::Json => format!("{{\"collective\":\"{}\",\"ranks\":{ranks},\"rows\":[", options.name),
        Format::Text => format!(
            "# muster {} on {ranks} ranks; times per call of the slowest rank\n#{:>11} {:>10} {:>8} {:>4} {:>5} {:>7} \
             {:>10} {:>10} {:>9} {:>9} {:>6}\n#{:>11} {:>10} {:>8} {:>4} {:>5} {:>7} {:>10} {:>10} {:>9} {:>9} {:>6}\n",
            options.name,
            "size",
            "count",
            "type",
            "op",
            "root",
            "iters",
            "p50",
            "p95",
            "algbw",
            "busbw",
            "#wrong",
            "(B)",
            "(elements)",
            "",
            "",
            "",
            "",
            "(us)",
            "(us)",
            "(GB/s)",
            "(GB/s)",
            "",
        ),
    }
}

/// One row; `first` matters to JSON.
pub fn row(options: &Options, ranks: usize, row: &Row, first: bool) -> String {
    let bandwidths = bandwidths(options.collective, row.bytes, ranks, row.p50);
    let rates = |digits: usize, none: &str| {
        let rate =
            |of: fn((f64, f64)) -> f64| bandwidths.map_or(none.to_owned(), |both| format!("{:.digits$}", of(both)));
        [rate(|both| both.0), rate(|both| both.1)]
    };
    let op = if reduces(options.collective) { options.op.to_string() } else { "none".to_owned() };
    let root = match options.root {
        _ if !has_root(options.collective) => "none".to_owned(),
        Root::Fixed(root) => root.to_string(),
        Root::Round => "round".to_owned(),
    };
    let (bytes, count, dtype, iterations) = (row.bytes, row.count, options.dtype, row.iterations);
    let (p50, p95, own) = (row.p50, row.p95, row.own_p50);
    let wrong = |none: &str| row.wrong.map_or(none.to_owned(), |wrong| wrong.to_string());
    let [algorithm, bus] = match options.format {
        Format::Csv => rates(4, ""),
        Format::Json => rates(4, "null"),
        Format::Text => rates(3, "-"),
    };
    match options.format {
        Format::Csv => format!(
            "{},{ranks},{bytes},{count},{dtype},{op},{root},{iterations},{p50:.2},{p95:.2},{own:.2},{algorithm},{bus},{}\n",
            options.name,
            wrong("")
        ),
        Format::Json => format!(
            "{}{{\"bytes\":{bytes},\"count\":{count},\"dtype\":\"{dtype}\",\"op\":\"{op}\",\"root\":\"{root}\",\
             \"iterations\":{iterations},\"p50_us\":{p50:.2},\"p95_us\":{p95:.2},\"p50_rank0_us\":{own:.2},\
             \"algbw_gb_s\":{algorithm},\"busbw_gb_s\":{bus},\"wrong\":{}}}",
            if first { "" } else { "," },
            wrong("null")
        ),
        Format::Text => format!(
            " {bytes:>11} {count:>10} {:>8} {op:>4} {root:>5} {iterations:>7} {p50:>10.2} {p95:>10.2} {algorithm:>9} \
             {bus:>9} {:>6}\n",
            dtype.to_string(),
            wrong("-")
        ),
    }
}

/// What follows the rows.
pub fn tail(options: &Options) -> &'static str {
    if options.format == Format::Json {
        "]}\n"
    } else {
        ""
    }
}

/// GB/s (10^9 bytes): all data of the operation divided by its time, and what a rank's link carries at least. The
/// factors are those of nccl-tests (doc/PERFORMANCE.md), where a size is the whole of what the ranks end up with. None
/// for one rank, which moves nothing.
fn bandwidths(collective: Collective, bytes: usize, ranks: usize, us: f64) -> Option<(f64, f64)> {
    if ranks == 1 {
        return None;
    }
    let (bytes, ranks) = (bytes as f64, ranks as f64);
    let (data, factor) = match collective {
        Collective::Barrier => (0.0, 0.0),
        Collective::Allreduce => (bytes, 2.0 * (ranks - 1.0) / ranks),
        Collective::Broadcast | Collective::Reduce | Collective::Sendrecv => (bytes, 1.0),
        Collective::Allgather
        | Collective::ReduceScatter
        | Collective::Alltoall
        | Collective::Gather
        | Collective::Scatter => (bytes * ranks, (ranks - 1.0) / ranks),
    };
    let algorithm = if us > 0.0 { data / us / 1000.0 } else { 0.0 };
    Some((algorithm, algorithm * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_bandwidth_is_what_a_link_carries() {
        // 1 MiB in 1,000 us on 4 ranks.
        let bus = |collective| bandwidths(collective, 1 << 20, 4, 1000.0).unwrap();
        let gb = 1_048_576.0 / 1e6;
        assert_eq!(bus(Collective::Allreduce), (gb, gb * 1.5));
        assert_eq!(bus(Collective::Broadcast), (gb, gb));
        assert_eq!(bus(Collective::Allgather), (4.0 * gb, 3.0 * gb));
        assert_eq!(bus(Collective::Alltoall), (4.0 * gb, 3.0 * gb));
        assert_eq!(bus(Collective::Barrier), (0.0, 0.0));
        assert_eq!(bandwidths(Collective::Allreduce, 1 << 20, 1, 0.05), None);
    }
}
