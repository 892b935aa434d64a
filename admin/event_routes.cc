#include "admin/event_routes.h"

#include <utility>

#include "admin/due_picture.h"
#include "admin/event_feed.h"

namespace tarry::admin {

namespace asio = boost::asio;

asio::awaitable<Reply> get_events(Call& call) {
  Reply reply;
  reply.content_type = "text/event-stream";
  // A proxy that gathers answers would hold events back.
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  reply.stream = call.context.events->open(call.context, call.reader);
  co_return reply;
}

asio::awaitable<Reply> get_due(Call& call) {
  Reply reply;
  auto& context = call.context;
  auto text = co_await context.due->text(context);
  reply.body = DuePicture::for_reader(std::move(text), context, call.reader);
  if (reply.body.empty()) throw Refused{503, "the broker is stopping"};
  reply.body += '\n';
  co_return reply;
}

}  // namespace tarry::admin
