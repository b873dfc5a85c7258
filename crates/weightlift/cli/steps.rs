//! From the flags to the steps of a plan, in the order in which they stand on the command line.

use clap::ArgMatches;
use weightlift::{Plan, Result, Words};

/// The steps that flags gave: each word with its text, in order.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<(String, String)>);

impl Given {
    /// What the flags of a verb say. A flag and a step have one word.
    pub(crate) fn in_order(matches: Option<&ArgMatches>) -> Given {
        let Some(matches) = matches else { return Given::default() };
        let mut found: Vec<(usize, &str, &String)> = Vec::new();
        for word in Words::all().chain(["recipe"]) {
            let id = word.replace('-', "_");
            let places = matches.indices_of(&id).into_iter().flatten();
            let values = matches.get_many::<String>(&id).into_iter().flatten();
            found.extend(places.zip(values).map(|(place, value)| (place, word, value)));
        }
        found.sort_by_key(|(place, ..)| *place);
        // What the output must have is compared when all is done.
        found.sort_by_key(|(_, word, _)| *word == "expect");
        Given(found.into_iter().map(|(_, word, text)| (word.to_owned(), text.clone())).collect())
    }

    /// The plan that they mean; files that they name are read.
    pub(crate) fn plan(&self, words: &Words) -> Result<Plan> {
        let mut plan = Plan::new();
        for (word, text) in &self.0 {
            let steps = match word.as_str() {
                "recipe" => weightlift::parse_recipe(text, &words.text(text)?, words)?,
                word => vec![words.step(word, text)?.into()],
            };
            plan = steps.into_iter().fold(plan, Plan::step);
        }
        Ok(plan)
    }

    /// The same as a recipe; recipes among the flags are written out in full.
    pub(crate) fn recipe(&self, words: &Words, allow_unmatched: bool) -> Result<String> {
        let mut recipe = String::from(if allow_unmatched { "allow-unmatched = true\n\n" } else { "" });
        for (word, text) in &self.0 {
            match word.as_str() {
                "recipe" => recipe.push_str(&weightlift::restate_recipe(text, &words.text(text)?, words)?),
                word => recipe.push_str(&weightlift::write_recipe([(word, text.as_str())], words.with_related)),
            }
        }
        Ok(recipe)
    }
}
