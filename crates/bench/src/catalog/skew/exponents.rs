//! The exponents of Zipf's law that `skew` goes through.

use super::TENTHS;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The exponents that `skew` goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exponents([bool; (*TENTHS.end() - *TENTHS.start() + 1) as usize]);

impl Default for Exponents {
    fn default() -> Self {
        Self([true; (*TENTHS.end() - *TENTHS.start() + 1) as usize])
    }
}

impl Exponents {
    /// Those of a list of numbers such as `0.9,1.2`.
    pub fn parse(list: &str) -> Result<Self> {
        let mut wanted = [false; (*TENTHS.end() - *TENTHS.start() + 1) as usize];
        for text in list.split(',') {
            let named =
                TENTHS.into_iter().position(|tenths| text == format!("{:.1}", exponent(tenths)));
            let Some(slot) = named.and_then(|at| wanted.get_mut(at)) else {
                bail!("--set zipf: `{text}` is none of 0.5, 0.6, ... 1.8")
            };
            *slot = true;
        }
        Ok(Self(wanted))
    }

    /// In their order.
    pub fn iter(self) -> impl Iterator<Item = f64> {
        TENTHS.zip(self.0).filter(|(_, wanted)| *wanted).map(|(tenths, _)| exponent(tenths))
    }
}

fn exponent(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_chosen_by_their_numbers() {
        let some = Exponents::parse("1.2,0.9,1.0").unwrap();
        assert_eq!(some.iter().collect::<Vec<_>>(), [0.9, 1.0, 1.2]);
        assert_eq!(Exponents::default().iter().count(), 14);
        assert!(Exponents::parse("0.95").is_err());
    }
}
