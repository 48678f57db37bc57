//! `/v1/responses`: OpenAI's newer form of a chat request. Nothing is stored.

use axum::extract::{Request, State};
use axum::response::Response;
use lapidary_text::ToolCall;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::body::read;
use crate::chat::job;
use crate::error::ApiError;
use crate::generate::{Answer, End, Generation};
use crate::info::json as answer;
use crate::responses_stream::Stream;
use crate::sampling::unavailable;
use crate::sse::respond;
use crate::wire::chat::ChatRequest;
use crate::wire::common::{ErrorBody, SamplingFields, Usage};
use crate::wire::responses::{
    InputTokens, Item, OutputTokens, ResponseAnswer, ResponseUsage, ResponsesRequest, Text,
};

/// Continues a conversation, in the form of OpenAI's responses. Nothing is stored.
#[utoipa::path(post, path = "/v1/responses", request_body = ResponsesRequest, responses(
    (status = 200, body = ResponseAnswer), (status = 400, body = ErrorBody),
    (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn responses(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let arrival = app.elapsed();
    let asked: ResponsesRequest = read(request, app.reading()).await?;
    let stream = asked.stream.unwrap_or(false);
    let (mut generation, frame) = app
        .apart(move |app| {
            refuse(&asked)?;
            let frame = frame(&asked, app)?;
            let started = Generation::start(app, job(&chat_request(asked)?, app)?, arrival);
            Ok((started.map_err(|error| error.of_prompt("input"))?, frame))
        })
        .await?;
    if stream {
        let heartbeat = app.settings().heartbeat;
        return Ok(respond(generation, Box::new(Stream::new(frame, app)), heartbeat));
    }
    let said = generation.whole().await?.into_iter().next().unwrap_or_default();
    Ok(answer(&whole(frame, said, &generation, &app)))
}

/// Refuses what would have an effect that cannot be had.
fn refuse(asked: &ResponsesRequest) -> Result<(), ApiError> {
    let given = [
        ("previous_response_id", asked.previous_response_id.is_some()),
        ("conversation", asked.conversation.is_some()),
        ("prompt", asked.prompt.is_some()),
        ("background", asked.background == Some(true)),
        ("truncation", !matches!(asked.truncation.as_deref(), None | Some("disabled"))),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(unavailable(name)),
        None => Ok(()),
    }
}

/// The same request in chat's form.
pub(crate) fn chat_request(asked: ResponsesRequest) -> Result<ChatRequest, ApiError> {
    let mut messages = Vec::new();
    if let Some(instructions) = asked.instructions {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    match asked.input.ok_or_else(|| ApiError::missing("input"))? {
        Value::String(text) => messages.push(json!({ "role": "user", "content": text })),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                add(&mut messages, i, item)?;
            }
        }
        _ => return Err(ApiError::field("input", "`input` must be text or a list of items")),
    }
    let effort = asked.reasoning.as_ref().and_then(|reasoning| reasoning["effort"].as_str());
    let tools = asked.tools.map(|tools| (0..).zip(tools).map(|(i, t)| tool(i, &t)).collect());
    Ok(ChatRequest {
        messages: Some(Value::Array(messages)),
        tools: tools.transpose()?,
        tool_choice: asked.tool_choice,
        parallel_tool_calls: asked.parallel_tool_calls,
        response_format: asked.text.as_ref().and_then(|text| text.get("format")).map(format),
        max_tokens: asked.max_output_tokens,
        reasoning_effort: effort.map(str::to_owned),
        sampling: SamplingFields {
            temperature: asked.temperature,
            top_p: asked.top_p,
            ..SamplingFields::default()
        },
        ..ChatRequest::default()
    })
}

/// Adds an item to the messages: calls and thoughts belong to the model's message before them.
fn add(messages: &mut Vec<Value>, i: usize, item: &Value) -> Result<(), ApiError> {
    let kind = item["type"].as_str().unwrap_or("message");
    match kind {
        "message" => messages.push(json!({ "role": item["role"], "content": item["content"] })),
        "function_call" => {
            let call = json!({
                "id": item["call_id"], "type": "function",
                "function": { "name": item["name"], "arguments": item["arguments"] },
            });
            let message = own_last(messages);
            match message.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => message["tool_calls"] = json!([call]),
            }
        }
        "function_call_output" => messages.push(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
        })),
        "reasoning" => {
            let texts = item["content"].as_array().into_iter().flatten();
            let text: String = texts.filter_map(|text| text["text"].as_str()).collect();
            if !text.is_empty() {
                messages.push(json!({ "role": "assistant", "reasoning": text }));
            }
        }
        other => {
            let path = format!("input[{i}].type");
            let public = format!(
                "{path} is {other:?}; use message, function_call, function_call_output or reasoning"
            );
            return Err(ApiError::unsupported(&path, public));
        }
    }
    Ok(())
}

/// The last message, if it is the model's and can take more calls, or a fresh one.
fn own_last(messages: &mut Vec<Value>) -> &mut Value {
    let own = messages.last().is_some_and(|last| last["role"] == "assistant");
    if !own {
        messages.push(json!({ "role": "assistant" }));
    }
    messages.last_mut().expect("one was pushed if there was none")
}

fn tool(i: usize, tool: &Value) -> Result<Value, ApiError> {
    if tool["type"] != "function" {
        let path = format!("tools[{i}].type");
        let public = format!("{path} is not `function`; only functions can be called here");
        return Err(ApiError::unsupported(&path, public));
    }
    let mut function = Map::new();
    for key in ["name", "description", "parameters"] {
        if let Some(value) = tool.get(key).filter(|value| !value.is_null()) {
            function.insert(key.to_owned(), value.clone());
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

/// `text.format` in chat's form, where a schema has its own object.
fn format(format: &Value) -> Value {
    match format["type"].as_str() {
        Some("json_schema") => json!({ "type": "json_schema", "json_schema": format }),
        _ => format.clone(),
    }
}

/// The answer before anything has been said.
fn frame(asked: &ResponsesRequest, app: &App) -> Result<ResponseAnswer, ApiError> {
    Ok(ResponseAnswer {
        id: app.world().id("resp_"),
        object: "response",
        created_at: (app.world().unix)(),
        status: "in_progress",
        error: None,
        incomplete_details: None,
        instructions: asked.instructions.clone(),
        max_output_tokens: asked.max_output_tokens,
        model: app.name(asked.model.as_deref())?,
        output: Vec::new(),
        parallel_tool_calls: asked.parallel_tool_calls.unwrap_or(true),
        previous_response_id: None,
        store: false,
        temperature: asked.temperature,
        tool_choice: asked.tool_choice.clone().unwrap_or_else(|| json!("auto")),
        tools: asked.tools.clone().unwrap_or_default(),
        top_p: asked.top_p,
        usage: None,
    })
}

fn whole(
    frame: ResponseAnswer,
    said: Answer,
    generation: &Generation,
    app: &App,
) -> ResponseAnswer {
    let mut output = Vec::new();
    if !said.reasoning.is_empty() {
        output.push(reasoning(app.world().id("rs_"), said.reasoning));
    }
    if !said.content.is_empty() || said.calls.is_empty() {
        output.push(message(app.world().id("msg_"), said.content, "completed"));
    }
    output.extend(said.calls.into_iter().map(|call| function_call(&call, app)));
    let end = said.end.unwrap_or(End::Stop);
    finished(ResponseAnswer { output, ..frame }, &end, &generation.usage())
}

/// The answer once everything has been said.
pub(crate) fn finished(frame: ResponseAnswer, end: &End, usage: &Usage) -> ResponseAnswer {
    let cut = *end == End::Length;
    ResponseAnswer {
        status: if cut { "incomplete" } else { "completed" },
        incomplete_details: cut.then(|| json!({ "reason": "max_output_tokens" })),
        usage: Some(ResponseUsage {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokens {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokens {
                reasoning_tokens: usage.completion_tokens_details.reasoning_tokens,
            },
            total_tokens: usage.total_tokens,
        }),
        ..frame
    }
}

pub(crate) fn reasoning(id: String, text: String) -> Item {
    Item::Reasoning { id, summary: [], content: vec![Text::ReasoningText { text }] }
}

pub(crate) fn message(id: String, text: String, status: &'static str) -> Item {
    let content = vec![Text::OutputText { text, annotations: [] }];
    Item::Message { id, role: "assistant", status, content }
}

pub(crate) fn function_call(call: &ToolCall, app: &App) -> Item {
    Item::FunctionCall {
        id: app.world().id("fc_"),
        call_id: app.world().id("call_"),
        name: call.name.clone(),
        arguments: call.arguments.to_string(),
        status: "completed",
    }
}
