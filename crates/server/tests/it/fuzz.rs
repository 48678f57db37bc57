//! The fuzz target over a small corpus and its mutations.

use lapidary_server::fuzz;
use lapidary_testkit::Rng;

const CORPUS: [&str; 4] = [
    r#"{"model":"x","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"b"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"stop":["a","b"],"logit_bias":{"1":-100},"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"seed":7}"#,
    r#"{"max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"t"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":""},{"type":"tool_use","id":"1","name":"f","input":{"a":null}}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},"thinking":{"type":"enabled","budget_tokens":9}}"#,
    r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"b"},{"type":"reasoning","content":[{"type":"reasoning_text","text":"h"}]}],"text":{"format":{"type":"json_schema","name":"x","schema":{}}},"tools":[{"type":"function","name":"f"}],"reasoning":{"effort":"low"}}"#,
    r#"{"prompt":[1,2,3],"input":["a",[1]],"encoding_format":"base64","echo":true,"logprobs":3,"response_format":{"type":"json_object"}}"#,
];

#[test]
fn requests_never_panic() {
    let mut rng = Rng(1);
    for seed in CORPUS {
        fuzz::request(seed.as_bytes());
        for _ in 0..2000 {
            let mut data = seed.as_bytes().to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.below(data.len());
                let end = (at + rng.below(16)).min(data.len());
                match rng.below(4) {
                    0 => drop(data.drain(at..end)),
                    1 => data[at] = b"{}[]\",:01-ntf"[rng.below(13)],
                    2 => {
                        let piece = data[at..end].to_vec();
                        let to = rng.below(data.len());
                        data.splice(to..to, piece);
                    }
                    _ => data.truncate(at),
                }
                if data.is_empty() {
                    break;
                }
            }
            fuzz::request(&data);
        }
    }
}
