//! The pictures of `docs/scale.md`.

use crate::capacity::per_worker;
use crate::contention::{Claim, Load, MACHINES, Machine, simulate};
use crate::order::{self, CLOCKS};
use crate::{ahead, collisions};
use snowflake_core::Layout;
use snowflake_figures::page::File;
use snowflake_figures::picture::{Axis, Curves, Series};
use snowflake_figures::text::{duration_tick, tick};

/// All of them.
pub fn all() -> Vec<File> {
    let pictures =
        [("contention", contention()), ("ahead", ahead()), ("order", order()), ("collisions", collisions())];
    pictures
        .map(|(name, picture)| {
            (format!("docs/scale/{name}.svg"), picture.svg().expect("a picture in memory") + "\n")
        })
        .into()
}

/// No machine ends between two of these, and none is shown with more cores than it has.
const CORES: [usize; 9] = [1, 2, 4, 8, 16, 32, 48, 64, 96];

fn contention() -> Curves {
    let cap = per_worker(&Layout::default());
    let most = MACHINES.map(|machine| machine.cores).into_iter().max().expect("a machine");
    let rate = |machine: &Machine, claim, cores, think_ns| {
        simulate(machine, claim, &Load { cores, think_ns, ids: 1.0 }).ids_per_s
    };
    let panel = |think_ns| {
        let mut series = vec![Series::line("the layout's cap", 0, vec![(1.0, cap), (most as f64, cap)])];
        for (machine, colour) in MACHINES.iter().zip(1..) {
            let points = |claim| {
                let cores = CORES.into_iter().filter(|cores| *cores <= machine.cores);
                cores.map(|n| (n as f64, rate(machine, claim, n, think_ns))).collect()
            };
            series.push(Series::line(&format!("{}, best case", machine.name), colour, points(Claim::Adds)));
            let worst = points(Claim::SwapTaken);
            series.push(Series::dashes(&format!("{}, worst case", machine.name), colour, worst));
        }
        series
    };
    let panels = vec![
        ("IDs only: 250 ns between two calls".to_owned(), panel(250.0)),
        ("bulk rows: 5 µs between two calls".to_owned(), panel(5_000.0)),
    ];
    Curves {
        title: "IDs per second of one server, by the number of cores that generate them".to_owned(),
        note: "Simulated. Each machine ends at the number of its cores.".to_owned(),
        x: Axis::doubling("cores", tick, 1.0, most as f64),
        y: Axis::log("IDs per second", tick, &values(&panels)),
        panels,
        names: 180,
    }
}

fn ahead() -> Curves {
    let loads: Vec<f64> = (2..=19).map(|i| f64::from(i) * 0.05).collect();
    let series = [(1_024, "1,024 IDs", 1), (10_240, "10,240 IDs", 2), (102_400, "102,400 IDs", 3)];
    let series = series.map(|(ids, name, colour)| {
        let points = loads.iter().map(|load| (load * 100.0, ahead::simulate(*load, ids, 10_000).mean_ms));
        // Below the axis: the IDs of a query that fits into the current millisecond are not ahead.
        Series::line(name, colour, points.filter(|(_, ms)| *ms >= 0.1).collect())
    });
    let panels = vec![(String::new(), Vec::from(series))];
    Curves {
        title: "How far a query's last ID is ahead of the clock, on average".to_owned(),
        note: "The real generator in simulated time; queries of so many IDs at random times.".to_owned(),
        x: Axis::linear("load, % of 4,096 IDs per millisecond", tick, 100.0),
        y: Axis::log("ahead of the clock", duration_tick, &values(&panels)),
        panels,
        names: 120,
    }
}

fn order() -> Curves {
    let names = [
        "PTP, or a cloud's clock",
        "NTP in a local network",
        "NTP over the Internet",
        "the same, a bad path",
    ];
    // The first two of them cannot be told apart in a picture: the tick hides both.
    let series = CLOCKS[1..].iter().zip(names).zip(1..).map(|((clocks, name), colour)| {
        let gaps = (0..=160).map(|i| 10_f64.powf(-2.0 + f64::from(i) / 32.0));
        let points = gaps.map(|gap| (gap, 100.0 * order::chance(clocks.sigma_ms, 1.0, gap, 0.0)));
        Series::line(name, colour, points.collect())
    });
    Curves {
        title: "IDs of two servers in the wrong order, by the time between the two events".to_owned(),
        note: "With a tick of 1 ms.".to_owned(),
        x: Axis::log("true time between the two events", duration_tick, &[0.01, 1_000.0]),
        y: Axis::linear("wrong, %", tick, 50.0),
        panels: vec![(String::new(), series.collect())],
        names: 200,
    }
}

fn collisions() -> Curves {
    let series = [(128, "of 128 home workers", 2), (1_024, "of 1,024 workers", 1)];
    let series = series.map(|(workers, name, colour)| {
        let points = (1..=100).map(|n| (f64::from(n), 100.0 * collisions::chance(n, workers)));
        Series::line(name, colour, points.collect())
    });
    Curves {
        title: "The chance that two servers share a worker, if each draws one at random".to_owned(),
        note: "The birthday problem.".to_owned(),
        x: Axis::linear("servers", tick, 100.0),
        y: Axis::linear("chance, %", tick, 100.0),
        panels: vec![(String::new(), Vec::from(series))],
        names: 180,
    }
}

/// The values that an axis must reach.
fn values(panels: &[(String, Vec<Series>)]) -> Vec<f64> {
    let series = panels.iter().flat_map(|(_, series)| series);
    series.flat_map(|one| one.points.iter().map(|(_, y)| *y)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_machine_is_shown_with_cores_that_it_does_not_have() {
        let shown = contention();
        for machine in MACHINES {
            assert!(CORES.contains(&machine.cores));
            let ends = |one: &Series| one.points.last().expect("a point").0;
            let of_it = shown.panels[0].1.iter().filter(|one| one.name.starts_with(machine.name));
            assert!(of_it.map(ends).all(|end| end == machine.cores as f64), "{machine:?}");
        }
    }
}
