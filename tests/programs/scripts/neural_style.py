"""Fast neural style: a transformer network with instance norms and upsampling, Gram matrices of a fixed loss network."""

from collections import namedtuple

import torch
import torch.nn as nn
from torch.optim import Adam

torch.manual_seed(42)


class ConvLayer(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride):
        super(ConvLayer, self).__init__()
        self.reflection_pad = torch.nn.ReflectionPad2d(kernel_size // 2)
        self.conv2d = torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride)

    def forward(self, x):
        return self.conv2d(self.reflection_pad(x))


class UpsampleConvLayer(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, upsample=None):
        super(UpsampleConvLayer, self).__init__()
        self.upsample = upsample
        self.layer = ConvLayer(in_channels, out_channels, kernel_size, stride)

    def forward(self, x):
        if self.upsample:
            x = torch.nn.functional.interpolate(x, mode="nearest", scale_factor=self.upsample)
        return self.layer(x)


class ResidualBlock(torch.nn.Module):
    def __init__(self, channels):
        super(ResidualBlock, self).__init__()
        self.conv1, self.in1 = ConvLayer(channels, channels, 3, 1), torch.nn.InstanceNorm2d(channels, affine=True)
        self.conv2, self.in2 = ConvLayer(channels, channels, 3, 1), torch.nn.InstanceNorm2d(channels, affine=True)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        return self.in2(self.conv2(self.relu(self.in1(self.conv1(x))))) + x


class TransformerNet(torch.nn.Module):
    def __init__(self):
        super(TransformerNet, self).__init__()
        self.conv1, self.in1 = ConvLayer(3, 4, 9, 1), torch.nn.InstanceNorm2d(4, affine=True)
        self.conv2, self.in2 = ConvLayer(4, 8, 3, 2), torch.nn.InstanceNorm2d(8, affine=True)
        self.res1 = ResidualBlock(8)
        self.deconv1, self.in4 = UpsampleConvLayer(8, 4, 3, 1, upsample=2), torch.nn.InstanceNorm2d(4, affine=True)
        self.deconv2 = ConvLayer(4, 3, 9, 1)
        self.relu = torch.nn.ReLU()

    def forward(self, X):
        y = self.relu(self.in1(self.conv1(X)))
        y = self.relu(self.in2(self.conv2(y)))
        y = self.relu(self.in4(self.deconv1(self.res1(y))))
        return self.deconv2(y)


class LossNetwork(torch.nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)
        )
        self.slice1, self.slice2 = torch.nn.Sequential(), torch.nn.Sequential()
        for x in range(2):
            self.slice1.add_module(str(x), features[x])
        for x in range(2, 6):
            self.slice2.add_module(str(x), features[x])
        if not requires_grad:
            for param in self.parameters():
                param.requires_grad = False

    def forward(self, X):
        h1 = self.slice1(X)
        return namedtuple("Outputs", ["relu1", "relu2"])(h1, self.slice2(h1))


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def normalize_batch(batch):
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (batch.div_(255.0) - mean) / std


transformer, loss_net, mse_loss = TransformerNet(), LossNetwork(), torch.nn.MSELoss()
optimizer = Adam(transformer.parameters(), 1e-2)
style = (torch.rand(3, 16, 16) * 255).floor().repeat(2, 1, 1, 1)
gram_style = [gram_matrix(y) for y in loss_net(normalize_batch(style))]
for batch_id in range(6):
    x = (torch.rand(2, 3, 16, 16) * 255).floor()
    optimizer.zero_grad()
    y = normalize_batch(transformer(x))
    x = normalize_batch(x)
    features_y, features_x = loss_net(y), loss_net(x)
    content_loss = 1e2 * mse_loss(features_y.relu2, features_x.relu2)
    style_loss = 0.0
    for ft_y, gm_s in zip(features_y, gram_style):
        style_loss += mse_loss(gram_matrix(ft_y), gm_s[: len(x), :, :])
    style_loss *= 1e4
    tv = (y[..., 1:] - y[..., :-1]).abs().mean() + (y[..., 1:, :] - y[..., :-1, :]).abs().mean()
    total_loss = content_loss + style_loss + 1e-2 * tv
    total_loss.backward()
    optimizer.step()
    print(f"[{batch_id}]\tcontent: {content_loss.item():.5f}\tstyle: {style_loss.item():.4f}\ttotal: {total_loss.item():.4f}")
img = transformer(x).clone().clamp(0, 255)[0].detach().numpy().transpose(1, 2, 0).astype("uint8")
print(img.shape, img.dtype)

image = torch.rand(1, 3, 16, 16, requires_grad=True)
lbfgs = torch.optim.LBFGS([image.requires_grad_()], max_iter=3)
run = [0]
while run[0] <= 4:

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        lbfgs.zero_grad()
        loss = sum(mse_loss(gram_matrix(f), g[:1]) for f, g in zip(loss_net(image), gram_style)) * 1e3
        loss.backward()
        run[0] += 1
        print(run, loss.item())
        return loss

    lbfgs.step(closure)
