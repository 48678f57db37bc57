//! The `--kv` language: which layers store their entries how.
//!
//! ```text
//! kv      := regime | family=regime(,family=regime)*
//! family  := global | sliding | layers:A-B           later wins, unnamed layers are f16
//! regime  := f32 | f16 | hybrid[:8|6|5|4] | tq8 | tq6 | tq5 | tq4 | tq:kB:vB
//! ```

use std::fmt;
use std::str::FromStr;

use lapidary_core::{Code, KvLayerSpec, LayerId, Reach, Regime};
use thiserror::Error;

/// Bits that a rotated code may have.
pub const ROTATED_BITS: [u8; 4] = [8, 6, 5, 4];
/// Bits of the values in a plain `hybrid`.
const HYBRID_BITS: u8 = 8;

/// How every layer stores its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KvSpec {
    /// In the order written.
    rules: Vec<(Family, Regime)>,
}

/// Some of a model's layers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    All,
    Global,
    Sliding,
    Layers(u32, u32),
}

/// Why a `--kv` text means nothing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum KvSpecError {
    /// Not a regime.
    #[error(
        "`{0}` is no cache regime; choose f32, f16, hybrid[:B], tqB or tq:kB:vB with B one of 8, 6, 5, 4"
    )]
    Regime(String),
    /// Not a family of layers.
    #[error("`{0}` names no layers; write global, sliding or layers:A-B with A at most B")]
    Family(String),
}

impl KvSpec {
    /// How a layer stores its entries.
    pub fn regime(&self, layer: LayerId, spec: &KvLayerSpec) -> Regime {
        let global = spec.reach == Reach::All;
        let meant = |family: Family| match family {
            Family::All => true,
            Family::Global => global,
            Family::Sliding => !global,
            Family::Layers(first, last) => (first..=last).contains(&layer.0),
        };
        let rule = self.rules.iter().rfind(|(family, _)| meant(*family));
        rule.map_or(Regime::F16, |(_, regime)| *regime)
    }

    /// The last layer that is named by number. A model that has no such layer was not meant.
    pub fn last_named(&self) -> Option<LayerId> {
        let named = self.rules.iter().filter_map(|(family, _)| match family {
            Family::Layers(_, last) => Some(LayerId(*last)),
            Family::All | Family::Global | Family::Sliding => None,
        });
        named.max()
    }
}

impl Default for KvSpec {
    fn default() -> Self {
        Self { rules: vec![(Family::All, Regime::F16)] }
    }
}

impl FromStr for KvSpec {
    type Err = KvSpecError;

    fn from_str(s: &str) -> Result<Self, KvSpecError> {
        if !s.contains('=') {
            return Ok(Self { rules: vec![(Family::All, regime(s)?)] });
        }
        let rule = |rule: &str| {
            let (family_name, regime_name) = rule.split_once('=').unwrap_or((rule, ""));
            Ok((family(family_name)?, regime(regime_name)?))
        };
        Ok(Self { rules: s.split(',').map(rule).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for KvSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (family, regime)) in self.rules.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match family {
                Family::All => write!(f, "{comma}{regime}")?,
                Family::Global => write!(f, "{comma}global={regime}")?,
                Family::Sliding => write!(f, "{comma}sliding={regime}")?,
                Family::Layers(a, b) => write!(f, "{comma}layers:{a}-{b}={regime}")?,
            }
        }
        Ok(())
    }
}

fn family(s: &str) -> Result<Family, KvSpecError> {
    let wrong = || KvSpecError::Family(s.to_owned());
    match s {
        "global" => Ok(Family::Global),
        "sliding" => Ok(Family::Sliding),
        _ => {
            let range = s.strip_prefix("layers:").and_then(|range| range.split_once('-'));
            let (first, last) = range.ok_or_else(wrong)?;
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => Ok(Family::Layers(first, last)),
                _ => Err(wrong()),
            }
        }
    }
}

fn regime(s: &str) -> Result<Regime, KvSpecError> {
    let wrong = || KvSpecError::Regime(s.to_owned());
    let bits = |s: &str| {
        let bits = s.parse().ok().filter(|bits| ROTATED_BITS.contains(bits));
        bits.ok_or_else(wrong)
    };
    let rotated =
        |keys, values| Regime { keys: Code::Rotated(keys), values: Code::Rotated(values) };
    let hybrid = |values| Regime { keys: Code::F16, values: Code::Rotated(values) };
    match s {
        "f32" => return Ok(Regime::F32),
        "f16" => return Ok(Regime::F16),
        "hybrid" => return Ok(hybrid(HYBRID_BITS)),
        _ => {}
    }
    if let Some(values) = s.strip_prefix("hybrid:") {
        return Ok(hybrid(bits(values)?));
    }
    if let Some(sides) = s.strip_prefix("tq:") {
        let (keys, values) = sides.split_once(':').ok_or_else(wrong)?;
        let keys = keys.strip_prefix('k').ok_or_else(wrong)?;
        let values = values.strip_prefix('v').ok_or_else(wrong)?;
        return Ok(rotated(bits(keys)?, bits(values)?));
    }
    let both = bits(s.strip_prefix("tq").ok_or_else(wrong)?)?;
    Ok(rotated(both, both))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(reach: Reach) -> KvLayerSpec {
        KvLayerSpec { heads: 1, width: 256, reach, two_way: false }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let texts = ["f32", "f16", "hybrid:8", "hybrid:4", "tq8", "tq4", "tq:k6:v4"];
        for text in texts {
            assert_eq!(text.parse::<KvSpec>().map(|spec| spec.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("hybrid".parse::<KvSpec>(), "hybrid:8".parse());
    }

    #[test]
    fn later_rules_win_and_unnamed_layers_are_f16() {
        let spec: KvSpec = "global=tq4,layers:2-5=f32".parse().expect("well formed");
        let regime = |l, reach| spec.regime(LayerId(l), &layer(reach)).to_string();
        assert_eq!(regime(1, Reach::All), "tq4");
        assert_eq!(regime(2, Reach::All), "f32");
        assert_eq!(regime(5, Reach::Window(4)), "f32");
        assert_eq!(regime(6, Reach::Window(4)), "f16");
        assert_eq!((spec.last_named(), KvSpec::default().last_named()), (Some(LayerId(5)), None));
    }

    #[test]
    fn nonsense_is_refused_with_the_choices() {
        for text in ["", "tq7", "tq", "q8_0", "hybrid:3", "tq:k8", "tq:8:8", "tq:k8:v9"] {
            let error = text.parse::<KvSpec>().expect_err(text);
            assert!(error.to_string().contains("choose"), "{text}: {error}");
        }
        for text in ["all=f16", "layers:5-2=f16", "layers:a-b=f16", "global=f16,=f16"] {
            let error = text.parse::<KvSpec>().expect_err(text);
            assert!(matches!(error, KvSpecError::Family(_)), "{text}: {error}");
        }
    }
}
