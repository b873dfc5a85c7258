//! From the flags to the steps of a plan, in the order in which they stand on the command line.

use clap::ArgMatches;
use weightlift::{CastRule, KeyChoice, Pattern, Plan, Rename, Result, Step};

type Parse = fn(&str) -> Result<Step>;

/// The flags that are steps.
const STEPS: &[(&str, Parse)] = &[
    ("dtype", |text| Ok(Step::Cast(CastRule::parse(text)?))),
    ("include", |text| Ok(Step::Include(vec![Pattern::new(text)?]))),
    ("exclude", |text| Ok(Step::Exclude(vec![Pattern::new(text)?]))),
    ("rename", |text| Ok(Step::Rename(Rename::parse(text)?))),
    ("strip_prefix", |text| Ok(Step::StripPrefix(vec![text.to_owned()]))),
    ("add_prefix", |text| Ok(Step::AddPrefix(text.to_owned()))),
    ("key", |text| Ok(Step::Key(if text == "auto" { KeyChoice::Auto } else { KeyChoice::Path(text.to_owned()) }))),
];

/// The plan that the flags of a verb mean.
pub(crate) fn in_order(matches: Option<&ArgMatches>) -> Result<Plan> {
    let Some(matches) = matches else { return Ok(Plan::new()) };
    let mut found: Vec<(usize, Parse, &String)> = Vec::new();
    for (flag, parse) in STEPS {
        let places = matches.indices_of(flag).into_iter().flatten();
        let values = matches.get_many::<String>(flag).into_iter().flatten();
        found.extend(places.zip(values).map(|(place, value)| (place, *parse, value)));
    }
    found.sort_by_key(|(place, ..)| *place);
    found.into_iter().try_fold(Plan::new(), |plan, (_, parse, value)| Ok(plan.step(parse(value)?)))
}
